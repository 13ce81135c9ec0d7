// promise: law
//! A bucket whose clock stands still grants exactly its burst, to any number of threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use tollgate::{Ask, Asked, Quota, RateLimiter, TokenBucket};

use super::skewed::Skewed;
use super::{Over, Size, Store, counters, together, warm};
use tollgate_testing::Random;

const THREADS: usize = 16;
const START: u64 = 1_000_000_000_000;

/// Runs the scenario for small bursts and large ones.
pub fn run(size: Size) {
    for (burst, rounds) in [
        (1, size.choose(200, 400, 1_000)),
        (5, size.choose(200, 400, 1_000)),
        (1_200, size.choose(5, 50, 1_000)),
        (1_000_000, size.choose(0, 1, 10)),
    ] {
        let quota = Quota::per_second(100).burst(burst);
        let clock = Skewed::at(START).clock();
        let builder = || TokenBucket::builder(quota).clock(clock.clone());
        let buckets = || -> Vec<_> { (0..rounds).map(|_| builder().build()).collect() };
        let buckets_spread = || -> Vec<_> { (0..rounds).map(|_| builder().spread().build()).collect() };
        let plain = buckets();
        drain("a bucket", rounds, burst, |round, _| u64::from(plain[round].try_acquire().is_ok()));

        let spread = buckets_spread();
        drain("a bucket that is spread", rounds, burst, |round, _| {
            u64::from(spread[round].try_acquire().is_ok())
        });

        let limiters = Store::ALL.map(|store| {
            // Two keys for each round.
            let builder = RateLimiter::<u64>::builder(quota).clock(clock.clone());
            (store, store.room(builder, 4_000).build())
        });
        for (store, limiter) in &limiters {
            warm(limiter);
            let what = format!("a key ({store:?})");
            swept(limiter, || {
                drain(&what, rounds, burst, |round, _| {
                    u64::from(limiter.try_acquire(&(round as u64)).is_ok())
                });
            });
        }

        // Each round has a limiter, since keys without room share buckets.
        let outside: Vec<_> = (0..rounds)
            .map(|_| RateLimiter::<u64>::builder(quota).clock(clock.clone()).max_keys(0).build())
            .collect();
        for limiter in &outside {
            // The reservation makes the shared buckets, and is given back.
            drop(limiter.key(&0).reserve());
        }
        drain("a key without room", rounds, burst, |round, _| {
            u64::from(outside[round].try_acquire(&(round as u64)).is_ok())
        });

        // A debt of one burst is allowed by default.
        let mixed = buckets();
        drain("a bucket by all verbs", rounds, 2 * burst, |round, random| {
            by_any(mixed[round].ask(), burst, random)
        });
        let mixed = buckets_spread();
        drain("a spread bucket by all verbs", rounds, 2 * burst, |round, random| {
            by_any(mixed[round].ask(), burst, random)
        });
        for (store, limiter) in &limiters {
            let what = format!("a key by all verbs ({store:?})");
            drain(&what, rounds, 2 * burst, |round, random| {
                // Other keys than above.
                by_any(limiter.key(&(rounds + round as u64)), burst, random)
            });
        }
    }
}

/// Runs `work` while another thread looks for idle keys, and finds none.
fn swept(limiter: &RateLimiter<u64>, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            while !done.load(Relaxed) {
                assert_eq!(limiter.evict_idle(), 0, "no time passes");
                thread::yield_now();
            }
        });
        let over = Over(&done);
        work();
        drop(over);
        // ThreadSanitizer does not see into std, and would miss the end of the scope.
        sweeper.join().expect("no key is idle");
    });
}

/// Takes by any verb, or else a single token. Returns 0 when no more can be owed, either.
fn by_any<'a>(ask: Ask<'a, impl Asked<'a, Rule = Quota>>, burst: u64, random: &mut Random) -> u64 {
    let n = 1 + random.below(burst.min(7));
    let ask = ask.n(n);
    let taken = match random.below(4) {
        0 => ask.try_acquire().map_or(0, |granted| granted.tokens()),
        1 => ask.acquire_up_to().tokens(),
        // The cost is more than the estimate.
        2 => ask.hold().map_or(0, |hold| n + 2 - hold.settle(n + 2)),
        _ => ask.reserve().map_or(0, |reservation| reservation.commit().tokens()),
    };
    if taken > 0 { taken } else { ask.n(1).reserve().map_or(0, |reservation| reservation.commit().tokens()) }
}

/// Lets the threads take until each is refused, in one round after another.
fn drain(what: &str, rounds: u64, holds: u64, take: impl Fn(usize, &mut Random) -> u64 + Sync) {
    let (granted, start) = (counters(rounds as usize), Barrier::new(THREADS));
    let shares = counters(THREADS);
    together(THREADS, |index| {
        let mut random = Random(index as u64);
        for (round, granted) in granted.iter().enumerate() {
            start.wait();
            let mut mine = 0;
            loop {
                match take(round, &mut random) {
                    0 => break,
                    n => mine += n,
                }
            }
            shares[index].fetch_add(mine, Relaxed);
            granted.fetch_add(mine, Relaxed);
        }
        0
    });
    for (round, granted) in granted.into_iter().enumerate() {
        let granted = granted.into_inner();
        assert_eq!(granted, holds, "{what} of {holds}, round {round}");
    }
    let shares: Vec<_> = shares.into_iter().map(AtomicU64::into_inner).collect();
    let (least, most) = (shares.iter().min().expect("threads"), shares.iter().max().expect("threads"));
    println!("  {what} of {holds} tokens: {rounds} rounds; a thread got {least} to {most} of them");
}
