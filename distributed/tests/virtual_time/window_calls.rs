//! The calls of a fleet for a window, beside those for a bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Quota, Window};
use tollgate_distributed::SharedRule;

use crate::cells::random::Random;
use crate::world::World;

/// Virtual time goes in whole milliseconds, so the time from a call to its answer is two.
const RTT: Duration = Duration::from_millis(1);
/// A second and each edge of a minute: 2026-01-01 00:00 UTC.
const NEW_YEAR_US: u64 = 1_767_225_600_000_000;
const SECONDS: f64 = 5.0;
const PROCESSES: usize = 8;
/// Requests a second of a process.
const DEMAND: f64 = 250.0;

/// Runs a fleet on one key, at twice the rate or more. Returns the granted tokens, and the calls.
async fn run<R: SharedRule>(rule: R, horizon: Option<Duration>) -> (u64, u64) {
    let world = World::at(NEW_YEAR_US, RTT);
    let process = |_| {
        let builder = world.process(rule);
        match horizon {
            Some(horizon) => builder.leased(horizon),
            None => builder.exact(),
        }
        .build()
        .unwrap()
    };
    let fleet: Vec<_> = (0..PROCESSES).map(process).collect();
    let granted = Arc::new(AtomicU64::new(0));
    let (mut random, mut requests, mut at) = (Random(0x9E37_79B9_7F4A_7C15), JoinSet::new(), 0.0);
    loop {
        at += random.gap(DEMAND * PROCESSES as f64);
        if at > SECONDS {
            break;
        }
        if at > world.now().as_secs_f64() {
            world.sleep_until(at).await;
            while requests.try_join_next().is_some() {}
        }
        let (limiter, granted) = (fleet[random.below(PROCESSES)].clone(), granted.clone());
        requests.spawn(async move {
            granted.fetch_add(u64::from(limiter.ask(&1).await.is_ok()), Relaxed);
        });
    }
    requests.join_all().await;
    (granted.load(Relaxed), world.calls.load(Relaxed))
}

/// Prints README's table of the calls of windows, and compares it with README.
#[tokio::test(start_paused = true)]
async fn the_table_of_calls_of_windows() {
    let readme = include_str!("../../README.md");
    let (mut missing, mut table) = (0, String::new());
    let tau = |millis| Some(Duration::from_millis(millis));
    for (limit, horizon, most) in [
        (1_000, None, 1_100),
        (1_000, tau(100), 90),
        (1_000, tau(200), 60),
        (100, None, 2_000),
        (100, tau(100), 700),
        (100, tau(200), 400),
    ] {
        let bucket = run(Quota::per_second(limit), horizon).await;
        let window = run(Window::per_second(limit).utc(), horizon).await;
        let calls = [bucket, window].map(|(granted, calls)| calls * 1_000 / granted);
        let [bucket, fixed] = calls;
        let mode =
            horizon.map_or("exact".to_owned(), |horizon| format!("leased, {} ms", horizon.as_millis()));
        let row = format!("| {limit}/s | {mode} | {bucket} | {fixed} |\n");
        assert!(window.0 <= limit * 6, "{row}: {window:?}");
        assert!(fixed <= most, "{row}");
        missing += u32::from(!readme.contains(&row));
        table += &row;
    }
    println!("{table}");
    assert_eq!(missing, 0, "rows are not in README.md:\n{table}");
}
