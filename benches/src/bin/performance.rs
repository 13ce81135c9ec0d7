//! Measures everything, and writes `docs/performance.md`, its plots and the CSV file of the day.
//! The raw results go into `benches/target/performance.json`. A quick run writes `quick` and
//! `quick.json` there, and nothing into `docs`.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml --bin performance             # all
//! cargo run --release --manifest-path benches/Cargo.toml --bin performance -- --quick  # 3 minutes
//! ```
//!
//! With `--only NAME` one part is measured anew, and the others are taken from the run before. With
//! `--plots` no part is. With `--page` only the page is written, from the CSV files beside it.

use std::error::Error;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use tollgate_benches::contenders;
use tollgate_benches::report;
use tollgate_benches::results::{Granted, Results};
use tollgate_benches::scenarios::{self, Effort};

#[rustfmt::skip]
const PARTS: &[&str] = &[
    "one-bucket", "line", "mixed", "windows", "keyed", "forms", "strings", "latency", "flood", "newcomers", "room",
    "memory", "start", "proxy",
];

struct Options {
    quick: bool,
    /// Parts to measure, all of them if there is none.
    only: Vec<String>,
    page: bool,
    plots: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let (kept, folder) = match options.quick {
        true => (target.join("quick.json"), target.join("quick")),
        false => (target.join("performance.json"), target.join("../../docs")),
    };
    if options.page {
        return Ok(report::page(&folder)?);
    }
    let mut results = match options.plots || !options.only.is_empty() {
        true if kept.exists() => serde_json::from_reader(io::BufReader::new(fs::File::open(&kept)?))?,
        _ => Results::default(),
    };
    // A folder that cannot be made is an error before a quarter of an hour of measurements.
    fs::create_dir_all(&folder)?;
    if !options.plots {
        let start = Instant::now();
        // A part that is measured anew does not make it another run.
        let seconds = results.about.seconds;
        measure(&options, &mut results)?;
        results.about.seconds = if options.only.is_empty() { start.elapsed().as_secs() } else { seconds };
        fs::write(&kept, serde_json::to_vec(&results)?)?;
    }
    // On a mock clock: they are the same in each run.
    results.levels = scenarios::tokens_over_time();
    let granted = |of: scenarios::Client| Granted {
        client: of.client.to_owned(),
        algorithm: of.algorithm.to_owned(),
        over_time: of.over_time(),
    };
    results.clients = scenarios::clients().into_iter().map(granted).collect();
    report::write(&results, &folder)?;
    println!("{}", folder.join("performance.md").display());
    Ok(())
}

fn options() -> Result<Options, String> {
    let mut options = Options { quick: false, only: Vec::new(), page: false, plots: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--page" => options.page = true,
            "--plots" => options.plots = true,
            "--only" => match args.next() {
                Some(part) if PARTS.contains(&part.as_str()) => options.only.push(part),
                part => return Err(format!("--only needs one of {PARTS:?}, not {part:?}")),
            },
            _ => return Err(format!("{arg} is none of --quick, --only PART, --plots, --page")),
        }
    }
    Ok(options)
}

fn measure(options: &Options, results: &mut Results) -> io::Result<()> {
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);

    let mut one_bucket = contenders::one_bucket();
    let mut keyed = contenders::keyed::<u64>();
    let mut strings = contenders::strings();
    let mut forms = contenders::forms::<u64>();
    results.about = scenarios::about(options.quick)?;
    results.laws = scenarios::who_limits("one bucket", &mut one_bucket, &());
    results.laws.extend(scenarios::who_limits("keyed", &mut keyed, &7));
    let mut at_their_cap = contenders::at_their_cap();
    results.laws.extend(scenarios::who_limits("keyed", &mut at_their_cap, &7));
    results.laws.extend(scenarios::who_limits("strings", &mut strings, &"key".to_owned()));
    results.laws.extend(scenarios::who_limits("forms", &mut forms, &7));

    if wanted("one-bucket") {
        results.times.retain(|times| times.case.what != "one bucket" || times.case.path.contains('%'));
        one_bucket.push(contenders::floor());
        let (times, shares) = scenarios::one_bucket(&effort, &one_bucket);
        one_bucket.pop();
        results.times.extend(times);
        results.shares = shares;
    }
    if wanted("line") {
        results.transfers = scenarios::transfers(&effort);
    }
    if wanted("mixed") {
        results.times.retain(|times| !times.case.path.contains('%'));
        results.times.extend(scenarios::mixed(&effort, &one_bucket));
    }
    let keyed_windows = contenders::keyed_windows();
    if wanted("windows") {
        let mut windows = contenders::one_window();
        results.laws.extend(scenarios::whose_windows_limit(&mut windows));
        results.times.retain(|times| !times.case.what.contains("window"));
        results.times.extend(scenarios::windows(&effort, &windows, &keyed_windows));
    }
    if wanted("keyed") {
        results.times.retain(|times| !times.case.what.starts_with("keyed"));
        keyed.push(contenders::keyed_floor());
        results.times.extend(scenarios::keyed(&effort, &keyed));
        keyed.pop();
    }
    if wanted("forms") {
        results.times.retain(|times| times.case.what != "forms");
        results.times.extend(scenarios::forms(&effort, &forms));
    }
    if wanted("strings") {
        results.times.retain(|times| !times.case.what.starts_with("strings"));
        results.times.extend(scenarios::strings(&effort, &strings));
    }
    if wanted("latency") {
        results.latencies.retain(|latencies| latencies.case.what != "one bucket");
        results.latencies.extend(scenarios::one_by_one(&effort, &one_bucket));
    }
    // Single decisions are asked of a limiter and a bucket: handles and batches are ways to ask for
    // many.
    keyed.retain(|contender| !["pinned", "batches"].iter().any(|way| contender.name.contains(way)));
    if wanted("flood") {
        results.latencies.retain(|latencies| latencies.case.what == "one bucket");
        results.latencies.extend(scenarios::flooded(&effort, &keyed));
        results.latencies.extend(scenarios::evicted(&effort, &keyed));
        results.latencies.extend(scenarios::swept(&effort, &keyed));
    }
    if wanted("newcomers") {
        results.times.retain(|times| times.case.what != "flood at capacity");
        let ours = keyed.iter().filter(|contender| contender.name.starts_with("tollgate"));
        let contenders: Vec<_> = ours.chain(&at_their_cap).collect();
        results.times.extend(scenarios::newcomers(&effort, &contenders));
    }
    if wanted("room") {
        results.rooms = scenarios::rooms(&effort);
    }
    if wanted("memory") {
        // The first two are there already.
        keyed.extend(keyed_windows.into_iter().skip(2));
        results.memory = scenarios::memory(&effort, &keyed)?;
    }
    if wanted("start") {
        results.starts = scenarios::starts(&effort, &one_bucket)?;
    }
    if wanted("proxy") {
        match scenarios::proxies(&effort) {
            Ok(proxies) => results.proxies = proxies,
            Err(error) => {
                eprintln!("the proxies did not run (wrk is Debian's package of that name): {error}")
            }
        }
    }
    Ok(())
}
