//! One process: it asks from some tasks, and prints the time of each grant.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate_distributed::{AnyStore, DistributedLimiter};

use crate::{DEMAND, Failure, QUOTA};

/// Requests that wait at a time.
const TASKS: u64 = 64;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn migrate(url: &str) -> Result<(), Failure> {
    Ok(AnyStore::open(url)?.migrate().await?)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(url: &str, mode: &str, seconds: f64) -> Result<(), Failure> {
    let builder = DistributedLimiter::<String, _>::builder(QUOTA, AnyStore::open(url)?).name("fleet");
    let builder = if mode == "exact" { builder.exact() } else { builder };
    let limiter = builder.deadline(Duration::from_secs(5)).build()?;
    // The first call connects.
    let _ = limiter.peek(mode).await;
    let (grants, first, begun) = (Arc::new(Mutex::new(Vec::new())), monotonic(), Instant::now());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, grants, key) = (limiter.clone(), grants.clone(), mode.to_owned());
        let gap = TASKS as f64 / DEMAND;
        tasks.spawn(async move {
            for request in 0.. {
                let at = (request as f64 + task as f64 / TASKS as f64) * gap;
                if at > seconds {
                    return;
                }
                tokio::time::sleep_until((begun + Duration::from_secs_f64(at)).into()).await;
                if limiter.ask(&key).await.is_ok() {
                    grants.lock().unwrap().push(monotonic());
                }
            }
        });
    }
    tasks.join_all().await;
    let stats = limiter.stats();
    limiter.shutdown().await;
    let decided = stats.by_lease + stats.by_shadow + stats.by_store + stats.by_fallback + stats.by_policy;
    let mut lines =
        format!("\nbegun {first}\nfleet {decided} {} {}\n", stats.ops, stats.by_fallback + stats.by_policy);
    for at in grants.lock().unwrap().iter() {
        writeln!(lines, "grant {at}")?;
    }
    print!("{lines}");
    Ok(())
}

/// Returns the microseconds since the machine's start, which all processes share.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
