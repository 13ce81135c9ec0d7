// promise: law
//! More threads than cores, which stumble at random points while buckets come and go.
//!
//! The clock is the real one, or a mock clock that a thread moves while the others decide. A thread
//! sleeps here only to be in the way of others: no verdict depends on a duration. A watchdog aborts
//! a scenario that never ends.

#![cfg(not(any(loom, shuttle)))]

#[path = "stress/live_bucket.rs"]
mod live_bucket;

use std::cell::Cell;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use threads::watchdog::Watchdog;
use threads::{Over, Size, Store, conservation, counters, drain};
use tollgate::{Clock, Equivalent, Quota, RateLimiter, ToKey, TokenBucket, WhenFull};
use tollgate_testing::{Random, size};

#[path = "stress/table.rs"]
mod table;
#[expect(dead_code, unreachable_pub, reason = "the package `verify` has it too, and its other sizes")]
mod threads;
#[path = "stress/verbs.rs"]
mod verbs;

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

/// Takes from a hot key, and from others that come and go, for long enough on the real clock that
/// their buckets are evicted.
#[test]
fn every_key_keeps_the_law_on_the_real_clock() {
    for store in [Store::Map, Store::Table] {
        every_key_keeps_the_law(store);
    }
}

fn every_key_keeps_the_law(store: Store) {
    const KEYS: usize = 400;
    let quota = Quota::per_second(2_000).burst(20);
    let watch = Stopwatch::start();
    let limiter = store.room(RateLimiter::<u64>::builder(quota), 60).build();
    let granted = counters(KEYS);
    let begun = Instant::now();
    let take = |key: usize| {
        granted[key].fetch_add(u64::from(limiter.try_acquire(&(key as u64)).is_ok()), Relaxed);
    };
    // The first keys come once.
    (1..40).for_each(take);
    oversubscribed(
        |index, goes_on| {
            let mut random = Random(index as u64);
            while goes_on() {
                // A window on the other keys moves on, by a key each 20 ms.
                let window = begun.elapsed().as_millis() as usize / 20;
                take(if random.below(2) == 0 {
                    0
                } else {
                    40 + (window + random.below(8) as usize) % (KEYS - 40)
                });
                random.stumble();
            }
        },
        || {
            while watch.read() < Duration::from_millis(3_000) {
                limiter.evict_idle();
                make_way(2_000);
            }
        },
    );
    limiter.evict_idle();
    let most = law(quota, watch.read());
    let hot = granted[0].load(Relaxed);
    let stats = limiter.stats();
    println!("{store:?}, the hot key: {hot} of {most}; {stats:?}");
    for (key, granted) in granted.into_iter().enumerate() {
        let granted = granted.into_inner();
        assert!(granted <= most, "{key}: {granted} granted, not {most}");
    }
    assert!(limiter.len() <= store.places(60), "{stats:?}");
    match store {
        Store::Table => assert!(stats.evicted > 0 && stats.shared > 0, "{stats:?}"),
        _ => assert!(stats.evicted >= 39, "{stats:?}"),
    }
}

/// Each removal gives a key another burst, and nothing else does.
#[test]
fn a_key_gets_a_burst_for_each_time_it_is_removed() {
    for store in [Store::Map, Store::Table] {
        a_burst_for_each_removal(store);
    }
}

fn a_burst_for_each_removal(store: Store) {
    const KEYS: usize = 8;
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u64>::builder(Quota::per_day(5)).clock(clock);
    // The sets of a key have room for those that were removed within 3 s as well. Hashes are
    // random, and with room for 100 both sets of a key were full now and then.
    let limiter = store.room(limiter, 1_000).build();
    let (granted, rounds) = (counters(KEYS), 500);
    oversubscribed(
        |index, goes_on| {
            let mut random = Random(index as u64);
            while goes_on() {
                let key = random.below(KEYS as u64);
                granted[key as usize].fetch_add(u64::from(limiter.try_acquire(&key).is_ok()), Relaxed);
                random.stumble();
            }
        },
        || {
            for round in 1..=rounds {
                for key in 0..KEYS as u64 {
                    while granted[key as usize].load(Relaxed) < 5 * round {
                        thread::yield_now();
                    }
                    let stats = limiter.stats();
                    let granted = granted[key as usize].load(Relaxed);
                    assert!(limiter.remove(&key), "{store:?}: {granted} of {key} in {round}: {stats:?}");
                }
                // No key earns a token in that time, but the places that removed keys left come
                // free.
                mock.advance(Duration::from_secs(3));
                assert_eq!(limiter.evict_idle(), 0);
            }
        },
    );
    for (key, granted) in granted.into_iter().enumerate() {
        let granted = granted.into_inner();
        assert!((5 * rounds..=5 * (rounds + 1)).contains(&granted), "{granted} granted to {key}");
    }
}

/// Every thread sets the clock back before its call, and forward again after it. Most readings are
/// behind the stamp, by up to eight times `skew`. Only the clock's gain in all was earned.
#[test]
fn readings_behind_the_stamp_earn_nothing() {
    for (burst, skew) in [(1, 1_000), (50, 1_000_000), (50, 300_000_000), (1_000, 10_000_000)] {
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(Quota::per_second(1_000).burst(burst)).clock(clock).build();
        mock.advance(Duration::from_secs(1_000));
        assert!(bucket.try_acquire_n(burst).is_ok());
        let granted = AtomicU64::new(0);
        let mut earned = 0;
        oversubscribed(
            |index, goes_on| {
                let mut random = Random(index as u64);
                while goes_on() {
                    let back = Duration::from_nanos(random.below(skew));
                    mock.rewind(back);
                    granted.fetch_add(u64::from(bucket.try_acquire().is_ok()), Relaxed);
                    random.stumble();
                    mock.advance(back);
                }
            },
            || {
                for _ in 0..300 {
                    mock.advance(Duration::from_millis(1));
                    earned += 1;
                    make_way(1_000);
                }
            },
        );
        let granted = granted.into_inner();
        println!("burst {burst}, skew {skew}: {granted} of {earned}");
        assert!(granted <= earned, "burst {burst}: {granted} granted, {earned} earned");
        // The clock ends where it should, and the untaken tokens are there.
        let left = bucket.peek().remaining();
        assert!(granted + left >= earned.min(burst), "{granted} granted, {left} left of {earned}");
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
