//! Decisions from tokens at hand, beside the core limiter in the same rounds.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Clock, Quota, RateLimiter};
use tollgate_benches::numbers::count;
use tollgate_benches::scenarios::say;
use tollgate_distributed::{DistributedLimiter, MemoryStore};

use super::effort::Effort;
use crate::limit::Failure;
use tollgate_benches::rows::Rows;

/// The section of these rows.
pub const SECTION: &str = "At hand";
/// The measure of these rows.
pub const NANOS: &str = "a decision";

/// Decisions of a thread in a round.
const DECISIONS: usize = 20_000;

type Store = MemoryStore<fn() -> u64>;
/// The limiter of this scenario: its store is in memory.
pub type Leased = DistributedLimiter<u64, Store>;

/// The limiters of a case, which hold tokens of all keys.
pub struct Limiters {
    core: RateLimiter<u64>,
    leased: Leased,
    keys: Vec<u64>,
}

impl Limiters {
    /// Makes the limiters, with a lease of each key.
    ///
    /// # Errors
    ///
    /// There is no runtime.
    pub fn new(keys: usize) -> Result<Limiters, Failure> {
        Clock::new().warm();
        let quota = Quota::per_second(1_000_000_000);
        let store: Store = MemoryStore::new(|| 1 << 50);
        // The store's bucket is full all the time, and no token is given back in between.
        let leased = DistributedLimiter::builder(quota, store)
            .name("at hand")
            .deadline(Duration::from_secs(10))
            .build()?;
        let draw = |n: usize| (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let drawn = (0..DECISIONS).map(|n| draw(n) % keys as u64).collect();
        Ok(Limiters { core: RateLimiter::new(quota), leased, keys: drawn })
    }

    /// Fills the leases, so that no decision of a round needs a call.
    pub async fn fill(&self) {
        for key in &self.keys[..self.keys.len().min(4_000)] {
            let _ = self.core.try_acquire(key);
            if self.leased.key(key).n(100_000).ask().await.is_ok() {
                self.leased.refund(key, 100_000);
            }
        }
    }

    /// Decides on a token of each drawn key, and returns the number of grants.
    ///
    /// # Panics
    ///
    /// `name` is none of `core` and `leased`.
    #[must_use]
    pub fn decide(&self, name: &str) -> u64 {
        match name {
            "core" => by_core(&self.core, &self.keys),
            "leased" => by_lease(&self.leased, &self.keys),
            _ => panic!("{name} is none of core, leased"),
        }
    }

    /// Returns the nanoseconds of a decision, on threads that decide at the same time.
    fn time(&self, name: &str, threads: usize) -> f64 {
        let start = Barrier::new(threads);
        let run = || {
            start.wait();
            let begun = Instant::now();
            let granted = self.decide(name);
            let took = begun.elapsed();
            if granted == DECISIONS as u64 { took.as_secs_f64() * 1e9 / DECISIONS as f64 } else { f64::NAN }
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            others
                .into_iter()
                .fold(run(), |sum, other| sum + other.join().expect("a decision does not panic"))
                / threads as f64
        })
    }
}

#[inline(never)]
fn by_core(limiter: &RateLimiter<u64>, keys: &[u64]) -> u64 {
    keys.iter().map(|key| u64::from(black_box(limiter).try_acquire(key).is_ok())).sum()
}

#[inline(never)]
fn by_lease(limiter: &Leased, keys: &[u64]) -> u64 {
    keys.iter().map(|key| u64::from(black_box(limiter).try_acquire_local(key).is_ok())).sum()
}

/// Times both limiters in turn.
///
/// # Errors
///
/// There is no runtime.
pub async fn measure(effort: &Effort) -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    for (keys, threads) in [(1_000, 1), (1, 1), (1, 2)] {
        let case = format!("{}, {}", count(keys, "key"), count(threads, "thread"));
        say(format_args!("at hand, {case}"));
        let (limiters, mut core, mut leased) = (Limiters::new(keys)?, Vec::new(), Vec::new());
        for _ in 0..effort.short_rounds {
            limiters.fill().await;
            core.push(limiters.time("core", threads));
            leased.push(limiters.time("leased", threads));
        }
        let ratios: Vec<f64> = leased.iter().zip(&core).map(|(one, other)| one / other).collect();
        rows.rounds([SECTION, &case, "core", NANOS], "ns", &core);
        rows.rounds([SECTION, &case, "leased", NANOS], "ns", &leased);
        rows.rounds([SECTION, &case, "leased / core", NANOS], "", &ratios);
    }
    Ok(rows)
}
