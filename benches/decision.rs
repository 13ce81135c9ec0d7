//! The time of a decision, in seconds: `cargo bench`. The package in `benches/` has all cases, and
//! other limiters beside them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tollgate::{Clock, Quota, RateLimiter, TokenBucket};

const ROUNDS: u32 = 9;

/// Prints the median of some rounds, in nanoseconds a decision.
fn time(case: &str, decisions: u32, mut decide: impl FnMut(u64)) {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..u64::from(decisions)).for_each(&mut decide);
            start.elapsed()
        })
        .collect();
    rounds.sort();
    let nanos = rounds[rounds.len() / 2].as_nanos() as f64 / f64::from(decisions);
    println!("{case:40} {nanos:7.1} ns");
}

fn main() {
    // `cargo test` runs it as well, to see that it runs.
    let decisions = if std::env::args().any(|arg| arg == "--bench") { 1_000_000 } else { 100 };
    Clock::new().warm();

    let granting = TokenBucket::new(Quota::per_second(1_000_000_000).burst(1 << 30));
    time("one bucket, granted, 1 thread", decisions, |_| assert!(black_box(granting.try_acquire()).is_ok()));
    let refusing = TokenBucket::new(Quota::per_hour(1));
    let _ = refusing.try_acquire();
    time("one bucket, refused, 1 thread", decisions, |_| assert!(black_box(refusing.try_acquire()).is_err()));
    for keys in [1_000, 100_000] {
        let limiter = RateLimiter::<u64>::new(Quota::per_second(1_000_000_000).burst(1 << 30));
        (0..keys).for_each(|key| assert!(limiter.try_acquire(&key).is_ok()));
        // A prime, so that no key follows its neighbour.
        let key = |n: u64| n.wrapping_mul(7_368_787) % keys;
        let case = format!("a limit for each of {keys} keys, 1 thread");
        time(&case, decisions, |n| assert!(black_box(limiter.try_acquire(&key(n))).is_ok()));
    }
}
