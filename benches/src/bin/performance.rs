//! Measures everything, and writes the CSV file of the day into `docs/performance`. A quick run
//! writes into `benches/target/quick`.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml --bin performance             # all
//! cargo run --release --manifest-path benches/Cargo.toml --bin performance -- --quick  # 3 minutes
//! scripts/tables && scripts/plot    # the pages of the CSV files
//! ```
//!
//! With `--only PART` one part is measured anew, and the others are those of the day's file. With
//! `--one-thread` decisions back to back are of one thread alone: on a machine with other work, two
//! threads seldom run at the same time. With `--simulated` only `simulated.csv` is written, the
//! numbers of the mock clock.

use std::error::Error;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use tollgate_benches::contenders;
use tollgate_benches::report::{self, MACHINE};
use tollgate_benches::results::Results;
use tollgate_benches::rows::Rows;
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
    simulated: bool,
    /// Whether cases back to back have one thread alone.
    one_thread: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crate_folder.join(if options.quick { "target/quick" } else { "../docs/performance" });
    // A folder that cannot be made is an error before a quarter of an hour of measurements.
    fs::create_dir_all(&folder)?;
    if options.simulated {
        return Ok(report::simulated().write(&folder.join("simulated.csv"))?);
    }
    let (start, about) = (Instant::now(), scenarios::about()?);
    let path = folder.join(&about.date).with_extension("csv");
    let mut rows = Rows::default();
    report::add_machine(&mut rows, &about);
    let before = if options.only.is_empty() || !path.exists() { Rows::default() } else { Rows::read(&path)? };
    let effort = options.effort(before.text_of(MACHINE, "effort"));
    rows.text([MACHINE, "", "", "effort"], &effort);
    for (name, version) in &about.versions {
        rows.text([MACHINE, "", name, "version"], version);
    }
    let results = measure(&options)?;
    rows.number([MACHINE, "", "", "seconds"], "s", start.elapsed().as_secs() as f64);
    rows.0.extend(report::rows(&results).0);
    let mut all = before;
    all.replace(rows);
    all.write(&path)?;
    println!("{}: scripts/tables and scripts/plot write the page", path.display());
    Ok(())
}

impl Options {
    /// Returns the thoroughness of the run, given that of the day's file.
    fn effort(&self, before: Option<&str>) -> String {
        if self.only.is_empty() {
            return if self.quick { "quick" } else { "full" }.to_owned();
        }
        // A part that is measured anew does not make it another run.
        let Some(parts) = before.unwrap_or("parts: ").strip_prefix("parts: ") else {
            return before.unwrap_or_default().to_owned();
        };
        let earlier =
            parts.split(", ").filter(|part| !part.is_empty() && !self.only.iter().any(|only| only == part));
        let parts: Vec<&str> = earlier.chain(self.only.iter().map(String::as_str)).collect();
        format!("parts: {}", parts.join(", "))
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options { quick: false, only: Vec::new(), simulated: false, one_thread: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--one-thread" => options.one_thread = true,
            "--simulated" => options.simulated = true,
            "--only" => match args.next() {
                Some(part) if PARTS.contains(&part.as_str()) => options.only.push(part),
                part => return Err(format!("--only needs one of {PARTS:?}, not {part:?}")),
            },
            _ => return Err(format!("{arg} is none of --quick, --only PART, --one-thread, --simulated")),
        }
    }
    Ok(options)
}

fn measure(options: &Options) -> io::Result<Results> {
    let mut effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    if options.one_thread {
        effort.most_threads = 1;
    }
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);

    let mut results = Results::default();
    let mut one_bucket = contenders::one_bucket();
    let mut keyed = contenders::keyed::<u64>();
    let mut strings = contenders::strings();
    let mut forms = contenders::forms::<u64>();
    results.laws = scenarios::who_limits("one bucket", &mut one_bucket, &());
    results.laws.extend(scenarios::who_limits("keyed", &mut keyed, &7));
    let mut at_their_cap = contenders::at_their_cap();
    results.laws.extend(scenarios::who_limits("keyed", &mut at_their_cap, &7));
    results.laws.extend(scenarios::who_limits("strings", &mut strings, &"key".to_owned()));
    results.laws.extend(scenarios::who_limits("forms", &mut forms, &7));

    if wanted("one-bucket") {
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
        results.times.extend(scenarios::mixed(&effort, &one_bucket));
    }
    let keyed_windows = contenders::keyed_windows();
    if wanted("windows") {
        let mut windows = contenders::one_window();
        results.laws.extend(scenarios::whose_windows_limit(&mut windows));
        results.times.extend(scenarios::windows(&effort, &windows, &keyed_windows));
    }
    if wanted("keyed") {
        keyed.push(contenders::keyed_floor());
        results.times.extend(scenarios::keyed(&effort, &keyed));
        keyed.pop();
    }
    if wanted("forms") {
        results.times.extend(scenarios::forms(&effort, &forms));
    }
    if wanted("strings") {
        results.times.extend(scenarios::strings(&effort, &strings));
    }
    if wanted("latency") {
        results.latencies.extend(scenarios::one_by_one(&effort, &one_bucket));
    }
    // Single decisions are asked of a limiter and a bucket: handles and batches are ways to ask for
    // many.
    keyed.retain(|contender| !["pinned", "batches"].iter().any(|way| contender.name.contains(way)));
    if wanted("flood") {
        results.latencies.extend(scenarios::flooded(&effort, &keyed));
        results.latencies.extend(scenarios::evicted(&effort, &keyed));
        results.latencies.extend(scenarios::swept(&effort, &keyed));
    }
    if wanted("newcomers") {
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
    Ok(results)
}
