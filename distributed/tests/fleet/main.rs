//! A fleet of processes on one store of each engine, and its grants beside those of one ideal
//! bucket.
//!
//! ```text
//! cargo build --release -p tollgate-distributed --all-features --examples
//! FULL=1 cargo test --release -p tollgate-distributed --all-features --test fleet -- --nocapture
//! ```
//!
//! Each process is this program again: it runs the test `child`, with its task in the environment.

mod child;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
mod edge;
mod ideal;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
mod matrix;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod outage;
mod programs;
#[cfg(all(feature = "redis", feature = "http"))]
mod service;

// The cells of the matrix are common to these servers and to virtual time.
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
#[expect(dead_code, reason = "the matrix in virtual time uses the rest")]
#[path = "../matrix/mod.rs"]
mod cells;

use std::error::Error;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ideal::Figures;
use tempfile::TempDir;
use tollgate::Quota;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use tollgate_test_servers::any::Engine;
use tollgate_test_servers::clock::WrongClock;
use tollgate_testing::size;

type Failure = Box<dyn Error>;

const PROCESSES: usize = 4;
/// Requests a second of one process: twice the rate in all.
const DEMAND: f64 = 500.0;
const QUOTA: Quota = Quota::per_second(1_000);

/// The length of a run, in seconds.
fn seconds() -> f64 {
    size(1.5, 10.0)
}

/// Starts a process, perhaps with a clock that is wrong by some hours.
fn spawn(url: &str, mode: &str, clock: Option<(&WrongClock, i64)>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some((clock, hours)) = clock {
        clock.set(&mut command, hours * 3_600);
    }
    command.args(["--exact", "child", "--nocapture"]);
    command.env("FLEET_URL", url).env("FLEET_MODE", mode).env("FLEET_RUNS", seconds().to_string());
    command.stdout(Stdio::piped()).spawn()
}

/// Runs the processes, kills some of them in the middle, and puts all grants into one bucket. Each
/// mode has a bucket of its own in the store.
fn run(url: &str, mode: &str, kill: usize, clock: Option<&WrongClock>) -> Result<Figures, Failure> {
    child::migrate(url)?;
    let hours = |index: usize| Some((clock?, if index.is_multiple_of(2) { 1 } else { -1 }));
    let mut children =
        (0..PROCESSES).map(|index| spawn(url, mode, hours(index))).collect::<Result<Vec<_>, _>>()?;
    if kill > 0 {
        std::thread::sleep(Duration::from_secs_f64(seconds() / 2.0));
        children.iter_mut().take(kill).try_for_each(Child::kill)?;
    }
    let mut outputs = Vec::new();
    for child in &mut children {
        let mut text = String::new();
        child.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
        child.wait()?;
        outputs.push(text);
    }
    Figures::of(&outputs, QUOTA, DEMAND * PROCESSES as f64 * seconds())
}

/// The bounds hold in both modes, and leases save nearly all calls.
fn compare(engine: &str, url: &str) -> Result<(), Failure> {
    let exact = run(url, "exact", 0, None)?;
    let leased = run(url, "leased", 0, None)?;
    for (mode, figures) in [("exact", &exact), ("leased", &leased)] {
        println!("{engine}, {mode}: {figures}");
        assert_eq!(figures.without_store, 0, "the store answered");
        assert!(figures.over < 1.0, "{engine}, {mode}: {figures}");
    }
    let ratio = exact.decisions / leased.calls;
    assert!(ratio >= 10.0, "{engine}: one call in {ratio} decisions");
    Ok(())
}

/// Compares on a server, if its program is installed.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
fn compare_on(engine: Engine) -> Result<(), Failure> {
    engine.start()?.map_or(Ok(()), |server| compare(engine.name(), &server.url()))
}

fn file(folder: &TempDir) -> String {
    format!("sqlite:{}/fleet.db", folder.path().display())
}

#[test]
fn sqlite() -> Result<(), Failure> {
    compare("SQLite", &file(&TempDir::with_prefix("tollgate-fleet-")?))
}

#[cfg(feature = "redis")]
#[test]
fn redis() -> Result<(), Failure> {
    compare_on(Engine::Redis)
}

#[cfg(feature = "postgres")]
#[test]
fn postgres() -> Result<(), Failure> {
    compare_on(Engine::Postgres)
}

#[cfg(feature = "mysql")]
#[test]
fn mariadb() -> Result<(), Failure> {
    compare_on(Engine::MariaDb)
}

#[cfg(feature = "mysql")]
#[test]
fn mariadb_is_frozen_or_killed() -> Result<(), Failure> {
    outage::run(Engine::MariaDb, outage::Kind::Frozen)?;
    outage::run(Engine::MariaDb, outage::Kind::Killed)
}

#[cfg(feature = "redis")]
#[test]
fn redis_is_frozen_or_killed() -> Result<(), Failure> {
    outage::run(Engine::Redis, outage::Kind::Frozen)?;
    outage::run(Engine::Redis, outage::Kind::Killed)
}

#[cfg(feature = "redis")]
#[test]
fn redis_is_demoted_and_keeps_its_connections() -> Result<(), Failure> {
    outage::a_server_is_demoted(true)?;
    outage::a_server_is_demoted(false)
}

#[cfg(feature = "redis")]
#[test]
fn a_key_that_is_no_bucket_is_no_outage() -> Result<(), Failure> {
    outage::one_bad_key()
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_is_frozen_or_killed() -> Result<(), Failure> {
    outage::run(Engine::Postgres, outage::Kind::Frozen)?;
    outage::run(Engine::Postgres, outage::Kind::Killed)
}

/// Processes that are killed lose the tokens of their leases, and no others.
#[test]
fn a_killed_process_loses_its_lease() -> Result<(), Failure> {
    let folder = TempDir::with_prefix("tollgate-fleet-")?;
    let figures = run(&file(&folder), "leased", 1, None)?;
    println!("one of four is killed: {figures}");
    assert!(figures.over < 1.0, "{figures}");
    // A killed process prints no grants: the other three exceed the rate.
    assert!(figures.decisions > 0.0 && figures.without_store == 0);
    Ok(())
}

/// Processes whose clocks are wrong by an hour share a bucket as others do.
#[cfg(feature = "redis")]
#[test]
fn wrong_clocks_change_nothing() -> Result<(), Failure> {
    let Some(clock) = WrongClock::new()? else { return Ok(()) };
    let Some(server) = Engine::Redis.start()? else { return Ok(()) };
    for mode in ["exact", "leased"] {
        let figures = run(&server.url(), mode, 0, Some(&clock))?;
        println!("clocks wrong by an hour, {mode}: {figures}");
        assert!(figures.over < 1.0 && figures.without_store == 0, "{figures}");
    }
    Ok(())
}

/// One process of a fleet, if the environment says so.
#[test]
fn child() -> Result<(), Failure> {
    match (std::env::var("FLEET_URL"), std::env::var("FLEET_MODE"), std::env::var("FLEET_RUNS")) {
        (Ok(url), Ok(mode), Ok(runs)) => child::run(&url, &mode, runs.parse()?),
        _ => Ok(()),
    }
}
