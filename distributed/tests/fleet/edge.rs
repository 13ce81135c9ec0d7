//! A day and a month end while four processes ask. The processes and the servers run under one
//! clock, which is a few seconds before that edge at first.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tokio::task::JoinSet;
use tollgate::Window;
use tollgate_distributed::{AnyStore, DistributedLimiter};
use tollgate_test_servers::any::Engine;
use tollgate_test_servers::clock::WrongClock;
use tollgate_test_servers::program::wait_until;

use crate::{Failure, child, file};

/// The begin of a day and of a month: 2031-03-01 00:00 UTC.
const EDGE: Duration = Duration::from_secs(1_930_089_600);
/// The time of requests before the edge, and after it.
const ASKED: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(2));
const PATIENCE: Duration = Duration::from_secs(60);
const PROCESSES: usize = 4;
const LIMITS: [(&str, u64); 2] = [("day", 60), ("month", 90)];

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the command that runs the test `edge::process`, with a task in the environment.
fn task(command: &mut Command, task: &str) -> std::io::Result<String> {
    command.args(["--exact", "edge::process", "--nocapture"]).env("EDGE_TASK", task);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    Ok(text)
}

#[test]
fn a_day_and_a_month_end_under_four_processes() -> Result<(), Failure> {
    let Some(clock) = WrongClock::new()? else { return Ok(()) };
    // The servers have to start before the edge. On a busy machine that takes longer.
    for seconds in [25, 100, 400] {
        let ahead = (EDGE - Duration::from_secs(seconds)).saturating_sub(now()).as_secs();
        let text = task(clock.set(&mut Command::new(env::current_exe()?), ahead as i64), "servers")?;
        if !text.contains("late") {
            return judge(&text);
        }
    }
    Err("the servers do not start within 400 s".into())
}

/// Counts the grants of each window on each store. A request at the edge is in neither.
fn judge(text: &str) -> Result<(), Failure> {
    let mut windows: BTreeMap<(String, String, String), [u64; 2]> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("grant ")) {
        let [store, mode, limit, begun, at] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let [begun, at] = [begun.parse()?, at.parse()?].map(Duration::from_micros);
        let window = windows.entry((store.into(), mode.into(), limit.into())).or_default();
        window[0] += u64::from(at < EDGE);
        window[1] += u64::from(begun >= EDGE);
    }
    let stores = 1 + Engine::ALL.into_iter().filter(|engine| is_there(*engine)).count();
    assert_eq!(windows.len(), stores * 2 * LIMITS.len(), "{text}");
    for ((store, mode, limit), granted) in windows {
        println!("{store}, {mode}, {limit}: {granted:?}");
        let (_, most) = LIMITS.into_iter().find(|(name, _)| *name == limit).ok_or("a limit")?;
        // Leases may hold some of the last tokens.
        let least = if mode == "exact" { most - 2 } else { most * 3 / 4 };
        let is_full = granted.iter().all(|granted| (least..=most).contains(granted));
        assert!(is_full, "{store}, {mode}, {limit}: {granted:?} of {most}");
    }
    Ok(())
}

fn is_there(engine: Engine) -> bool {
    use tollgate_test_servers::{mariadb, postgres, redis};
    match engine {
        Engine::Redis => redis::redis_is_installed(),
        Engine::Postgres => postgres::postgres_is_installed(),
        Engine::MariaDb => mariadb::mariadb_is_installed(),
    }
}

/// A process under the clock of the test, if the environment says so.
#[test]
fn process() -> Result<(), Failure> {
    match env::var("EDGE_TASK").as_deref() {
        Ok("servers") => servers(),
        Ok(url) => asks(url),
        Err(_) => Ok(()),
    }
}

/// Starts a server of each engine, and four processes on each.
fn servers() -> Result<(), Failure> {
    let folder = TempDir::with_prefix("tollgate-edge-")?;
    let sqlite = file(&folder);
    thread::scope(|scope| {
        scope.spawn(|| four(&sqlite, "SQLite"));
        for engine in Engine::ALL {
            scope.spawn(move || {
                if let Some(server) = engine.start().expect("it starts") {
                    four(&server.url(), engine.name());
                }
            });
        }
    });
    Ok(())
}

/// Runs four processes on a store, and prints their grants.
fn four(url: &str, store: &str) {
    // A server that starts beside others may not answer at once.
    let is_migrated = wait_until(PATIENCE, || {
        let made = child::migrate(url);
        made.inspect_err(|error| eprintln!("{store}: {error} at {:?}", now())).is_ok()
    });
    assert!(is_migrated, "{store} has no tables");
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                let program = env::current_exe().expect("it runs");
                let text = task(&mut Command::new(program), url).expect("it runs");
                for line in text.lines() {
                    match line.strip_prefix("grant ") {
                        Some(grant) => println!("grant {store} {grant}"),
                        None if line == "late" => println!("late"),
                        None => {}
                    }
                }
            });
        }
    });
}

/// Asks for each limit, in both modes, around the edge. Prints the times of the grants.
#[tokio::main(flavor = "current_thread")]
async fn asks(url: &str) -> Result<(), Failure> {
    let (lines, store) = (Arc::new(Mutex::new(String::from("\n"))), AnyStore::open(url)?);
    let mut tasks = JoinSet::new();
    for mode in ["exact", "leased"] {
        for (limit, tokens) in LIMITS {
            let rule = if limit == "day" { Window::per_day(tokens).utc() } else { Window::per_month(tokens) };
            let builder = DistributedLimiter::<String, _>::builder(rule, store.clone());
            let builder = builder.name(format!("{limit} {mode}")).deadline(Duration::from_secs(5));
            let limiter = if mode == "exact" { builder.exact() } else { builder }.build()?;
            // The first call connects.
            let _ = limiter.peek("key").await;
            let lines = lines.clone();
            tasks.spawn(async move {
                tokio::time::sleep((EDGE - ASKED.0).saturating_sub(now())).await;
                loop {
                    let begun = now();
                    if begun > EDGE + ASKED.1 {
                        return;
                    }
                    if limiter.ask("key").await.is_ok() {
                        let (begun, at) = (begun.as_micros(), now().as_micros());
                        let _ = writeln!(lines.lock().unwrap(), "grant {mode} {limit} {begun} {at}");
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
    }
    if now() > EDGE - ASKED.0 {
        lines.lock().unwrap().push_str("late\n");
    }
    tasks.join_all().await;
    print!("{}", lines.lock().unwrap());
    Ok(())
}
