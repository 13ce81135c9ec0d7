//! Processes of an earlier version, beside those of this one on one store.
//!
//! The earlier version is that of commit 6d967334, which knew buckets only. Each engine runs the
//! statements that its processes sent, as they were: a bucket's row, function, script and numbers
//! are the same since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, Spec};

use crate::engine::{Engine, PATIENT};

/// The bucket that all ask for.
pub(crate) const KEY: &[u8] = b"fleet:1";
/// Its quota, and the numbers of it that processes of that version sent: capacity, floor, debt,
/// microseconds of a tick, credits of a tick and of a token, and ticks from the floor to the brim.
pub(crate) const QUOTA: Quota = Quota::per_second(250).burst(100);
pub(crate) const NUMBERS: [i64; 7] = [400_000, 400_000, 0, 1, 1, 4_000, 800_000];

/// Together they grant at most the burst and the rate, each of them grants some, and none errs.
pub(crate) async fn earlier_processes_and_present_ones_share_a_bucket<E: Engine>(mut engine: E) {
    let spec = Spec::new(QUOTA, 0).unwrap();
    let numbers = [spec.capacity(), spec.floor(), spec.debt_credits(), spec.tick_us(), spec.per_tick()];
    assert_eq!(numbers, [0, 1, 2, 3, 4].map(|at| NUMBERS[at] as u64), "those of this version");
    let limiter = |is_exact: bool| {
        let builder = DistributedLimiter::<u64, _>::builder(QUOTA, engine.connect(PATIENT)).name("fleet");
        let builder = if is_exact { builder.exact() } else { builder };
        builder.deadline(Duration::from_secs(10)).build().unwrap()
    };
    let limiters = [limiter(true), limiter(false)];
    let (is_over, granted) = (Arc::<AtomicBool>::default(), Arc::<[AtomicU64; 2]>::default());
    let begun = Instant::now();
    // Redis has the script once a process of either version has sent it.
    limiters[0].ask(&1).await.unwrap();
    granted[0].fetch_add(1, Relaxed);
    let tasks = [0, 1].map(|which| {
        let (limiter, is_over, granted) = (limiters[which].clone(), is_over.clone(), granted.clone());
        tokio::spawn(async move {
            while !is_over.load(Relaxed) {
                granted[which].fetch_add(u64::from(limiter.ask(&1).await.is_ok()), Relaxed);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        })
    });
    let mut of_earlier = 0;
    let has_all = |of_earlier: u64| of_earlier >= 50 && granted.iter().all(|of| of.load(Relaxed) >= 20);
    while !has_all(of_earlier) {
        of_earlier += u64::from(engine.take_as_before().await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(begun.elapsed() < PATIENT.patience, "{of_earlier} and {granted:?} granted");
    }
    is_over.store(true, Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let all = of_earlier + granted.iter().map(|of| of.load(Relaxed)).sum::<u64>();
    let most = 100.0 + 250.0 * begun.elapsed().as_secs_f64() + 1.0;
    println!("{of_earlier} by the earlier version, {granted:?} by this one, of {most:.0}");
    assert!(all as f64 <= most, "{all} of {most}");
    for stats in limiters.map(|limiter| limiter.stats()) {
        let failed = stats.calls_permanent + stats.calls_unknown + stats.breaker_opened + stats.by_fallback;
        assert_eq!(failed, 0, "{stats:?}");
    }
}
