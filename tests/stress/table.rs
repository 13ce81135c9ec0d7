//! A fixed table under threads: keys that enter at once.

use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use tollgate::{Clock, Quota, RateLimiter, WhenFull};

use tollgate_testing::size;

use super::{LIMIT, Random, Watchdog, counters};

/// Four threads bring the same new keys at the same time, each in an order of its own. However they
/// meet, each key has one place: it is granted exactly its burst, and counted once.
#[test]
fn keys_that_enter_at_once_are_in_the_table_once() {
    const KEYS: u64 = 1_000;
    const BURST: u64 = 3;
    let rounds = size(30, 150);
    let (clock, _mock) = Clock::mock();
    // The table has twice the places, so hardly any key finds no room. Such a key is denied.
    let limiters: Vec<_> = (0..rounds)
        .map(|_| {
            let builder = RateLimiter::<u64>::builder(Quota::per_hour(BURST)).clock(clock.clone());
            builder.max_keys(KEYS as usize * 3 / 2).inline().unwrap().when_full(WhenFull::Deny).build()
        })
        .collect();
    let (granted, start) = (counters(KEYS as usize * rounds), Barrier::new(4));
    let _watchdog = Watchdog::of("keys that enter at once", LIMIT);
    thread::scope(|scope| {
        for index in 0..4 {
            let (limiters, granted, start) = (&limiters, &granted, &start);
            scope.spawn(move || {
                let mut random = Random(index);
                for (limiter, granted) in limiters.iter().zip(granted.chunks(KEYS as usize)) {
                    start.wait();
                    // All threads take the keys in the same order, so they meet.
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
            // Three of twelve calls are granted, unless the thread with the latch of the set was
            // descheduled.
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
    println!("{rounds} rounds of {KEYS} keys; {turned_away} calls were turned away");
}
