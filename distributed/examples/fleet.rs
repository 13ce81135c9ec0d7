//! A fleet of processes on one store, and its grants beside those of one ideal bucket.
//!
//! ```text
//! cargo run --release --example fleet --all-features -- redis://127.0.0.1:6379 leased
//! ```
//!
//! Options: `--processes N`, `--demand N` (requests a second of each), `--seconds N`, `--quota TEXT`,
//! `--kill N` (kills that number of processes in the middle, by SIGKILL).

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate_distributed::{AnyStore, DistributedLimiter};

type Done = Result<(), Box<dyn Error>>;

/// Requests of one process that wait at a time.
const TASKS: u64 = 64;

struct Options {
    url: String,
    mode: String,
    quota: Quota,
    processes: usize,
    demand: f64,
    seconds: f64,
    kill: usize,
    is_child: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        url: "sqlite::memory:".to_owned(),
        mode: "leased".to_owned(),
        quota: "1000/s burst 1000".parse()?,
        processes: 4,
        demand: 500.0,
        seconds: 10.0,
        kill: 0,
        is_child: false,
    };
    let (mut args, mut place) = (std::env::args().skip(1), 0);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--processes" => options.processes = value()?.parse()?,
            "--demand" => options.demand = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--quota" => options.quota = value()?.parse()?,
            "--kill" => options.kill = value()?.parse()?,
            "--child" => options.is_child = true,
            _ if place == 0 => (options.url, place) = (arg, 1),
            _ => options.mode = arg,
        }
    }
    Ok(options)
}

fn main() -> Done {
    let options = options()?;
    if options.is_child { child(&options) } else { parent(&options) }
}

/// Asks from some tasks, and prints the time of each grant.
#[tokio::main]
async fn child(options: &Options) -> Done {
    let store = AnyStore::open(&options.url)?;
    let builder = DistributedLimiter::<String, _>::builder(options.quota, store);
    let builder = if options.mode == "exact" { builder.exact() } else { builder };
    let limiter = builder.deadline(Duration::from_secs(2)).build()?;
    // The first call connects.
    let _ = limiter.peek("fleet").await;
    let (grants, begun) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, grants) = (limiter.clone(), grants.clone());
        let (gap, seconds) = (TASKS as f64 / options.demand, options.seconds);
        tasks.spawn(async move {
            for request in 0.. {
                let at = (request as f64 + task as f64 / TASKS as f64) * gap;
                if at > seconds {
                    return;
                }
                tokio::time::sleep_until((begun + Duration::from_secs_f64(at)).into()).await;
                if limiter.ask("fleet").await.is_ok() {
                    grants.lock().expect("no task panics").push(micros());
                }
            }
        });
    }
    tasks.join_all().await;
    let stats = limiter.stats();
    limiter.shutdown().await;
    let grants = std::mem::take(&mut *grants.lock().expect("no task panics"));
    let decided = stats.by_lease + stats.by_shadow + stats.by_store + stats.by_fallback + stats.by_policy;
    let mut lines = format!("{decided} {} {}\n", stats.ops, stats.by_fallback + stats.by_policy);
    grants.iter().for_each(|at| lines.push_str(&format!("{at}\n")));
    Ok(std::io::stdout().write_all(lines.as_bytes())?)
}

fn micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Runs the processes, and puts all their grants into one ideal bucket.
fn parent(options: &Options) -> Done {
    let spawn = |_| -> std::io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        let numbers = [("--demand", options.demand), ("--seconds", options.seconds)];
        command.args([&options.url, &options.mode, "--child", "--quota", &options.quota.to_string()]);
        numbers.iter().for_each(|(name, number)| {
            command.args([*name, &number.to_string()]);
        });
        command.stdout(Stdio::piped()).spawn()
    };
    let mut children = (0..options.processes).map(spawn).collect::<Result<Vec<_>, _>>()?;
    if options.kill > 0 {
        std::thread::sleep(Duration::from_secs_f64(options.seconds / 2.0));
        for child in children.iter_mut().take(options.kill) {
            child.kill()?;
        }
    }
    let (mut grants, mut counts) = (Vec::new(), [0_u64; 3]);
    for child in &mut children {
        let mut text = String::new();
        child.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
        child.wait()?;
        let mut lines = text.lines();
        let numbers =
            lines.next().unwrap_or("0 0 0").split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        counts.iter_mut().zip(numbers).for_each(|(count, number)| *count += number);
        grants.extend(lines.map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?);
    }
    grants.sort_unstable();
    print(options, &grants, counts);
    Ok(())
}

fn print(options: &Options, grants: &[u64], [decided, calls, without]: [u64; 3]) {
    let rate = options.quota.tokens() as f64 / options.quota.period().as_secs_f64();
    let (burst, mut over) = (options.quota.capacity() as f64, 0.0_f64);
    let (mut level, mut last) = (burst, grants.first().copied().unwrap_or(0));
    let first = last;
    for at in grants {
        level = (level + (at - last) as f64 / 1e6 * rate).min(burst) - 1.0;
        (over, last) = (over.max(-level), *at);
    }
    let ideal = (options.demand * options.processes as f64 * options.seconds)
        .min(burst + rate * (last - first) as f64 / 1e6);
    println!(
        "{} {}: {decided} decisions, {calls} calls ({:.1} a second, one in {:.1} decisions), {} granted of {ideal:.0}, \
         {over:.2} over the ideal bucket, {:.2} % under, {without} without the store",
        options.url.split(':').next().unwrap_or(""),
        options.mode,
        calls as f64 / options.seconds,
        decided as f64 / calls.max(1) as f64,
        grants.len(),
        (1.0 - grants.len() as f64 / ideal) * 100.0,
    );
}
