//! Latency of single decisions under a flood of never-seen keys, the map preallocated.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml --bin flood [keys]
//! ```

use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use tollgate::{Clock, Quota, RateLimiter, WhenFull};

fn main() {
    let keys = std::env::args().nth(1).map_or(1 << 20, |keys| keys.parse().expect("a number of keys"));
    println!(
        "{keys} keys at most, then as many never seen; ns a decision, two readings of std's clock in it\n"
    );
    println!("| flood | p50 | p99 | p99.9 | p99.99 | max | keys after | evicted |");
    println!("|---|---|---|---|---|---|---|---|");

    // Every key takes its only token of the hour: nothing is ever evictable.
    let limited = Quota::per_hour(1);
    // Every key is full again after a millisecond, and evictable after two seconds.
    let idle = Quota::per_second(1_000).burst(1);

    let (clock, _) = Clock::mock();
    run("into an empty map", keys, limited, clock, |_| (), WhenFull::Share);
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        let (clock, _) = Clock::mock();
        run(&format!("all keys limited, {policy:?}"), keys, limited, clock, fill(keys), policy);
    }
    run("all keys limited, Share, real clock", keys, limited, Clock::new(), fill(keys), WhenFull::Share);
    let (clock, mock) = Clock::mock();
    let age = |limiter: &Limiter| {
        fill(keys)(limiter);
        mock.advance(Duration::from_secs(3));
    };
    run("all keys evictable", keys, idle, clock, age, WhenFull::Deny);
}

type Limiter = RateLimiter<u64, RandomState>;

fn fill(keys: usize) -> impl Fn(&Limiter) {
    move |limiter| {
        for key in 0..keys as u64 {
            assert!(limiter.try_acquire(&key).is_ok());
        }
    }
}

fn run(name: &str, keys: usize, quota: Quota, clock: Clock, before: impl Fn(&Limiter), policy: WhenFull) {
    let limiter = Limiter::builder(quota).clock(clock).max_keys(keys).presize(keys).when_full(policy).build();
    before(&limiter);
    let mut nanos: Vec<u64> = (0..keys as u64)
        .map(|key| {
            let start = Instant::now();
            let _ = std::hint::black_box(limiter.try_acquire(&(u64::MAX - key)));
            u64::try_from(start.elapsed().as_nanos()).expect("a decision takes less than 584 years")
        })
        .collect();
    nanos.sort_unstable();
    let at = |part: f64| nanos[(part * (nanos.len() - 1) as f64) as usize];
    let (p50, p99, p999, p9999, max) = (at(0.5), at(0.99), at(0.999), at(0.9999), at(1.0));
    let stats = limiter.stats();
    println!("| {name} | {p50} | {p99} | {p999} | {p9999} | {max} | {} | {} |", stats.keys, stats.evicted);
}
