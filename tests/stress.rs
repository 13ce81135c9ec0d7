// promise: law
//! More threads than cores, which stumble at random points while buckets come and go.
//!
//! The clock is the real one, or a mock clock that a thread moves while the others decide. A thread
//! sleeps here only to be in the way of others: no verdict depends on a duration. A watchdog aborts
//! a scenario that never ends.

#![cfg(not(any(loom, shuttle)))]

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use threads::watchdog::Watchdog;
use threads::{Over, Size, conservation, drain};
use tollgate::{Clock, Quota, RateLimiter, TokenBucket};
use tollgate_testing::Random;

#[expect(dead_code, unreachable_pub, reason = "the package `verify` has it too, and its other sizes")]
mod threads;

const THREADS: usize = 8;
/// Seconds after which a scenario hangs. It takes a few, and 60 on a machine that is seven times as
/// busy.
const LIMIT: u64 = 600;

/// Leaves the processor to other threads for a while. No verdict depends on the duration.
fn make_way(micros: u64) {
    thread::sleep(Duration::from_micros(micros));
}

/// Runs `work` on each of eight threads until `lead`, on this thread, is done.
fn oversubscribed(work: impl Fn(usize, &dyn Fn() -> bool) + Sync, lead: impl FnOnce()) {
    let _watchdog = Watchdog::of(thread::current().name().unwrap_or("a scenario"), LIMIT);
    let done = AtomicBool::new(false);
    let (work, done) = (&work, &done);
    thread::scope(|scope| {
        for index in 0..THREADS {
            scope.spawn(move || work(index, &|| !done.load(Relaxed)));
        }
        let _over = Over(done);
        lead();
    });
}

#[test]
fn no_token_is_minted_or_lost_on_clocks_that_differ() {
    scenario("conservation", conservation::run);
}

#[test]
fn a_bucket_whose_clock_stands_still_grants_exactly_its_burst() {
    scenario("drain", drain::run);
}

#[test]
fn all_verbs_at_once_keep_the_law() {
    scenario("verbs", threads::verbs::run);
}

/// Runs the smallest size of a scenario that `verify` runs in full.
fn scenario(name: &str, run: fn(Size)) {
    let _watchdog = Watchdog::of(name, LIMIT);
    run(Size::Small);
}

/// Returns the most tokens that a bucket may grant in `t` of its clock: the burst, the earned ones,
/// and a tick's worth.
fn law(quota: Quota, t: Duration) -> u64 {
    let came = t.as_nanos() * u128::from(quota.tokens()) / quota.period().as_nanos();
    quota.capacity() + u64::try_from(came).expect("a short test") + 1
}

/// The real time from before the first call to after the last, on the clock that the limiters read.
struct Stopwatch(quanta::Clock, quanta::Instant);

impl Stopwatch {
    fn start() -> Stopwatch {
        let clock = quanta::Clock::new();
        Clock::new().warm();
        let begun = clock.now();
        Stopwatch(clock, begun)
    }

    fn read(&self) -> Duration {
        self.0.now().duration_since(self.1)
    }
}

#[test]
fn a_hot_bucket_keeps_the_law_on_the_real_clock() {
    for (quota, coarse) in [
        (Quota::per_second(50_000).burst(100), false),
        (Quota::per_second(1_000).burst(1), false),
        (Quota::per_second(3_000_000).burst(10), false),
        (Quota::per_second(50_000).burst(100), true),
    ] {
        let watch = Stopwatch::start();
        let clock = if coarse { Clock::coarse(Duration::from_millis(1)) } else { Clock::new() };
        let (bucket, granted) = (TokenBucket::builder(quota).clock(clock).build(), AtomicU64::new(0));
        oversubscribed(
            |index, goes_on| {
                let mut random = Random(index as u64);
                while goes_on() {
                    granted.fetch_add(u64::from(bucket.try_acquire().is_ok()), Relaxed);
                    random.stumble();
                }
            },
            || {
                while watch.read() < Duration::from_millis(400) || granted.load(Relaxed) < quota.capacity() {
                    thread::yield_now();
                }
            },
        );
        let (granted, most) = (granted.into_inner(), law(quota, watch.read()));
        println!("{quota}, coarse {coarse}: {granted} of {most}");
        assert!(granted >= quota.capacity() && granted <= most, "{quota}: {granted} granted, not {most}");
    }
}

/// A key that is counted as long as it lives.
#[derive(PartialEq, Eq, Hash)]
struct Counted(u64);

static ALIVE: AtomicIsize = AtomicIsize::new(0);

impl Counted {
    fn new(key: u64) -> Counted {
        ALIVE.fetch_add(1, Relaxed);
        Counted(key)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        Counted::new(self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

/// Keys are evicted, removed, cleared and inserted at once, by threads that come and go. The bound
/// holds whenever the threads rest, and each key is dropped once.
#[test]
fn no_key_leaks_and_the_bound_holds() {
    const ROOM: usize = 100;
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<Counted>::builder(Quota::per_second(100)).clock(clock).max_keys(ROOM).build();
    let janitor = limiter.janitor(Duration::from_millis(1));
    for round in 0..20 {
        let left = AtomicU64::new(10_000);
        oversubscribed(
            |index, goes_on| {
                let mut random = Random((index + round) as u64);
                while goes_on() {
                    let key = Counted::new(random.below(5 * ROOM as u64));
                    match random.below(1_000) {
                        0 => limiter.clear(),
                        1..20 => drop(limiter.remove(&key)),
                        20..24 => drop(limiter.evict_idle()),
                        24..100 => drop(limiter.pin().try_acquire_n(&key, 7)),
                        _ => drop(limiter.try_acquire(&key)),
                    }
                    let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                    random.stumble();
                }
            },
            || {
                while left.load(Relaxed) > 0 {
                    mock.advance(Duration::from_secs(3));
                    make_way(500);
                }
            },
        );
        assert!(limiter.len() <= ROOM, "{} keys in round {round}", limiter.len());
    }
    let stats = limiter.stats();
    println!("{stats:?}, {} alive", ALIVE.load(Relaxed));
    assert!(stats.evicted > 0 && stats.shared > 0, "{stats:?}");
    drop(janitor);
    assert!(ALIVE.load(Relaxed) >= limiter.len() as isize);
    drop(limiter);
    assert_eq!(ALIVE.load(Relaxed), 0, "each key was dropped once");
}
