//! A fixed table under threads: keys that enter at once, that go while they are charged, that find no room.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::{Clock, Quota, RateLimiter, WhenFull};

use super::{Fixed, Random, Stopwatch, THREADS, Watchdog, counters, law, make_way, oversubscribed};

/// Four threads bring the same new keys at the same time, each in an order of its own. However they meet, each key has one
/// place: it is granted exactly its burst, and counted once.
#[test]
fn keys_that_enter_at_once_are_in_the_table_once() {
    const KEYS: u64 = 1_000;
    const BURST: u64 = 3;
    const ROUNDS: usize = 150;
    let (clock, _mock) = Clock::mock();
    // Twice the places: hardly ever does one find no room. It is not granted then.
    let limiters: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let builder = RateLimiter::<u64>::builder(Quota::per_hour(BURST)).clock(clock.clone());
            builder.inline(KEYS as usize * 3 / 2).when_full(WhenFull::Deny).build()
        })
        .collect();
    let (granted, start) = (counters(KEYS as usize * ROUNDS), Barrier::new(4));
    let _watchdog = Watchdog::new();
    thread::scope(|scope| {
        for index in 0..4 {
            let (limiters, granted, start) = (&limiters, &granted, &start);
            scope.spawn(move || {
                let mut random = Random::of(index);
                for (limiter, granted) in limiters.iter().zip(granted.chunks(KEYS as usize)) {
                    start.wait();
                    // All in the same order: so they meet.
                    for key in 0..KEYS {
                        for _ in 0..BURST {
                            granted[key as usize]
                                .fetch_add(limiter.try_acquire(&key).is_ok().into(), Relaxed);
                        }
                        if random.below(500) == 0 {
                            thread::yield_now();
                        }
                    }
                }
            });
        }
    });
    let mut turned_away = 0;
    for (round, (limiter, granted)) in limiters.iter().zip(granted.chunks(KEYS as usize)).enumerate() {
        let stats = limiter.stats();
        turned_away += stats.refused_full;
        for (key, granted) in granted.iter().enumerate() {
            let granted = granted.load(Relaxed);
            // Of twelve calls, three found it or made it, unless somebody slept who had the latch of its set.
            let least = if stats.refused_full > 0 { 0 } else { BURST };
            assert!(
                (least..=BURST).contains(&granted),
                "round {round}, {key}: {granted} of {BURST}: {stats:?}"
            );
        }
        assert!(
            stats.keys as u64 <= KEYS && (stats.keys as u64 == KEYS || stats.refused_full > 0),
            "{stats:?}"
        );
        assert_eq!(stats.evicted, 0, "no time passes");
    }
    println!("{ROUNDS} rounds of {KEYS} keys; {turned_away} calls were turned away");
}

/// Five an hour: whoever finds room and whoever shares, and whatever the sweepers do, each gets five at most.
#[test]
fn a_key_of_a_table_has_one_live_bucket() {
    let quota = Quota::per_hour(1).burst(5);
    for (keys, room) in [(64, 64), (64, 1_000), (600, 64), (64, 1)] {
        let limiter = RateLimiter::<u64>::builder(quota).inline(room).build();
        let granted = counters(keys);
        let left = AtomicU64::new(30_000);
        oversubscribed(
            |index, goes_on| {
                let mut random = Random::of(index);
                while goes_on() {
                    let key = random.below(keys as u64);
                    granted[key as usize].fetch_add(limiter.try_acquire(&key).is_ok().into(), Relaxed);
                    let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                    random.stumble();
                }
            },
            || {
                while left.load(Relaxed) > 0 {
                    assert_eq!(limiter.evict_idle(), 0, "nobody is full");
                    thread::yield_now();
                }
            },
        );
        let places = room.div_ceil(6) * 8;
        for (key, granted) in granted.into_iter().enumerate() {
            let granted = granted.into_inner();
            assert!(granted <= 5, "{granted} granted to {key} of {keys} in {room}");
            assert!(granted == 5 || room < keys * 2, "{granted} granted to {key}, which has room");
        }
        // (A few may find both of their sets taken.)
        let held = keys.min(places) * 8 / 10..=keys.min(places);
        assert!(held.contains(&limiter.len()), "{:?}", limiter.stats());
    }
}

/// Time leaps over the fill time and the margin while threads decide: places change hands in the very moment when their keys come
/// back. A burst a leap is what a key may be granted at most; and one grant too many shows, since nearly all is taken.
#[test]
fn a_key_of_a_table_has_one_live_bucket_while_time_leaps() {
    const KEYS: u64 = 24;
    for (policy, room, sweeps) in [
        (WhenFull::Share, 1_000, true),
        (WhenFull::Share, 12, true),
        (WhenFull::Share, 1, false),
        (WhenFull::Deny, 12, false),
        (WhenFull::Deny, 1, true),
    ] {
        let (clock, mock) = Clock::mock();
        let limiter = RateLimiter::<u64, Fixed>::builder(Quota::per_second(10).burst(5)).clock(clock);
        let limiter = limiter.inline(room).when_full(policy).build();
        let granted = counters(KEYS as usize);
        let (calls, leaps) = (AtomicU64::new(0), 300);
        oversubscribed(
            |index, goes_on| {
                let mut random = Random::of(index);
                while goes_on() {
                    match random.below(40) {
                        0 if sweeps && index < 2 => drop(limiter.evict_idle()),
                        // One that comes once.
                        1..4 => drop(limiter.try_acquire(&(KEYS + random.below(1 << 40)))),
                        _ => {
                            let key = random.below(KEYS);
                            granted[key as usize]
                                .fetch_add(limiter.try_acquire(&key).is_ok().into(), Relaxed);
                        }
                    }
                    calls.fetch_add(1, Relaxed);
                    random.stumble();
                }
            },
            || {
                for _ in 0..leaps {
                    mock.advance(Duration::from_millis(2_600));
                    let until = calls.load(Relaxed) + 10 * KEYS;
                    while calls.load(Relaxed) < until {
                        thread::yield_now();
                    }
                }
            },
        );
        let stats = limiter.stats();
        let granted: Vec<_> = granted.into_iter().map(AtomicU64::into_inner).collect();
        let all: u64 = granted.iter().sum();
        let most = 5 * (leaps + 1);
        println!("{policy:?} in {room}: {all} of {}, {stats:?}", most * KEYS);
        assert!(granted.iter().all(|granted| *granted <= most), "{granted:?}, not {most}");
        assert!(stats.evicted > 100 && stats.keys <= room.div_ceil(6) * 8, "{stats:?}");
        assert!(all * 10 > most * KEYS || policy == WhenFull::Deny, "hardly anything was taken: {all}");
    }
}

/// Each removal, and nothing else, gives a key another burst; what was left is found again, and by others.
#[test]
fn a_key_of_a_table_gets_a_burst_for_each_time_it_is_removed() {
    const KEYS: usize = 8;
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u64>::builder(Quota::per_day(5)).clock(clock).inline(100).build();
    let (granted, rounds) = (counters(KEYS), 300);
    oversubscribed(
        |index, goes_on| {
            let mut random = Random::of(index);
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
                    assert!(limiter.remove(&key), "it has a bucket");
                }
                // Nobody earns a token in all of that; but places that were left come free.
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

/// On the real clock: a hot key, and others that come and go so slowly that they are evicted.
#[test]
fn every_key_of_a_table_keeps_the_law_on_the_real_clock() {
    const KEYS: usize = 400;
    let quota = Quota::per_second(2_000).burst(20);
    let watch = Stopwatch::start();
    let limiter = RateLimiter::<u64>::builder(quota).inline(60).build();
    let granted = counters(KEYS);
    let take = |key: usize| {
        granted[key].fetch_add(u64::from(limiter.try_acquire(&(key as u64)).is_ok()), Relaxed);
    };
    (1..40).for_each(take);
    oversubscribed(
        |index, goes_on| {
            let mut random = Random::of(index);
            while goes_on() {
                take(if random.below(2) == 0 { 0 } else { 40 + random.below(KEYS as u64 - 40) as usize });
                random.stumble();
            }
        },
        || {
            while watch.read() < Duration::from_millis(2_500) {
                limiter.evict_idle();
                make_way(2_000);
            }
        },
    );
    let (most, stats) = (law(quota, watch.read()), limiter.stats());
    println!("the hot key: {:?} of {most}; {stats:?}, {THREADS} threads", granted[0]);
    for (key, granted) in granted.into_iter().enumerate() {
        let granted = granted.into_inner();
        assert!(granted <= most, "{key}: {granted} granted, not {most}");
    }
    assert!(stats.keys <= 80 && stats.evicted > 0 && stats.shared > 0, "{stats:?}");
}
