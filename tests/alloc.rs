// promise: bounded
//! Allocations, and the memory that stays: the global allocator counts them for each thread by
//! itself.

#![cfg(not(any(loom, shuttle)))]

use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

use allocation_counter::measure;
use tollgate::{
    Clock, MockClock, Places, Quota, RateLimiter, TokenBucket, WhenFull, Window, WindowCounter, all_of,
};
use tollgate_testing::size;

fn allocates_nothing(what: &str, work: impl FnOnce()) {
    let counted = measure(work);
    assert_eq!((counted.count_total, counted.bytes_current), (0, 0), "{what} allocates");
}

#[test]
fn the_allocator_counts() {
    let counted = measure(|| drop(black_box(Vec::<u8>::with_capacity(100))));
    assert_eq!((counted.count_total, counted.bytes_current, counted.bytes_max), (1, 0, 100));
    let kept = measure(|| std::mem::forget(black_box(Box::new(7_u64))));
    assert_eq!((kept.count_total, kept.bytes_current), (1, 8));
}

#[test]
fn a_token_bucket_never_allocates() {
    static LIMIT: TokenBucket = TokenBucket::new(Quota::per_hour(3));
    Clock::new().warm();
    let (clock, mock) = Clock::mock();
    allocates_nothing("a bucket", || {
        let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
        for n in [0, 3, 8, 11, 7, 1] {
            let _ = black_box(bucket.try_acquire_n(n).map_err(|denied| denied.retry_after()));
            let _ = black_box((bucket.try_acquire(), bucket.peek().reset_after()));
            mock.advance(Duration::from_millis(150));
        }
        for _ in 0..5 {
            let _ = black_box((LIMIT.try_acquire(), LIMIT.peek()));
        }
        assert!(LIMIT.try_acquire().is_err());
    });
}

/// Calls every verb, on a bucket and on a known key, granted and refused.
#[test]
fn the_verbs_allocate_nothing() {
    let (clock, mock) = Clock::mock();
    let (quota, gold) = (Quota::per_second(10), Quota::per_second(20));
    let bucket = TokenBucket::builder(quota).clock(clock.clone()).build();
    let limiter = RateLimiter::<String>::builder(quota).headroom(gold).unwrap().clock(clock).build();
    let plan = limiter.plan(gold).unwrap();
    let key = "the key of some length";
    assert!(limiter.try_acquire(key).is_ok());
    // The first reservation that waits makes the lines of callers.
    drop((limiter.key(key).n(9).reserve(), limiter.key(key).n(9).reserve()));
    for round in 0..20 {
        let now = limiter.now();
        allocates_nothing("a verb of a bucket", || {
            let _ = black_box((bucket.ask().n(2).at(now).try_acquire(), bucket.ask().n(2).acquire_up_to()));
            let (kept, dropped) = (bucket.ask().n(3).reserve(), bucket.ask().n(2).reserve());
            drop(dropped);
            let _ = black_box(kept.map(|kept| (kept.delay(), kept.ready_at(), kept.commit())));
            let _ = black_box(bucket.ask().hold().map(|hold| hold.settle(round)));
            bucket.refund(1);
            bucket.set_rule(Quota::per_second(10 + round % 2)).unwrap();
        });
        allocates_nothing("a verb of a key", || {
            let _ = black_box((
                limiter.key(key).n(2).at(now).try_acquire(),
                limiter.key(key).n(2).acquire_up_to(),
            ));
            let _ = black_box(
                limiter.key(key).n(2).under(&plan).try_acquire().map_err(|denied| denied.retry_after()),
            );
            let (kept, dropped) = (limiter.key(key).n(3).reserve(), limiter.key(key).n(2).reserve());
            drop(dropped);
            let _ = black_box(kept.map(|kept| (kept.delay(), kept.ready_at(), kept.commit())));
            let _ = black_box(limiter.key(key).hold().map(|hold| hold.settle(round)));
            limiter.refund(key, 1);
            limiter.set_rule(Quota::per_second(10 + round % 2)).unwrap();
        });
        allocates_nothing("several limits", || {
            let limits = (bucket.ask().n(2), limiter.key(key).n(2), limiter.key(key).under(&plan));
            let _ = black_box(all_of(limits).try_acquire().map_err(|denied| denied.retry_after()));
            let _ = black_box(all_of(&[bucket.ask(), bucket.ask()][..]).try_acquire());
        });
        mock.advance(Duration::from_millis(150));
    }
}

/// Takes and leaves places with every outcome, of limits that are full and limits that decide.
#[test]
fn a_place_of_a_known_key_allocates_nothing() {
    let keys = RateLimiter::<String, _>::new(Places::new(2));
    let key = "the key of some length";
    let held = keys.key(key).hold().unwrap();
    allocates_nothing("a place of a key", || {
        for _ in 0..20 {
            let second = black_box(keys.key(key).hold()).unwrap();
            assert!(black_box(keys.key(key).hold()).is_err());
            second.settle(0);
            black_box(keys.key(key).hold_owned()).unwrap().settle(0);
        }
    });
    held.settle(0);
}

fn limiter<K>(quota: Quota, max_keys: usize, policy: WhenFull) -> (RateLimiter<K>, MockClock) {
    let (clock, mock) = Clock::mock();
    (RateLimiter::builder(quota).clock(clock).max_keys(max_keys).when_full(policy).build(), mock)
}

#[test]
fn a_decision_on_a_known_key_allocates_nothing() {
    let (limiter, mock) = limiter::<String>(Quota::per_second(2), 10_000, WhenFull::Share);
    let keys: Vec<String> = (0..1_000).map(|key| format!("the key of some length {key}")).collect();
    for key in &keys {
        assert!(limiter.try_acquire(key.as_str()).is_ok());
    }
    let (mut granted, mut refused) = (0, 0);
    let mut decide = |decision: Result<tollgate::Granted, tollgate::Denied>| match decision {
        Ok(decision) => granted += u64::from(decision.reset_after() > Duration::ZERO),
        Err(decision) => refused += u64::from(decision.retry_after().is_some()),
    };
    for _ in 0..3 {
        allocates_nothing("a decision", || {
            keys.iter().for_each(|key| decide(limiter.try_acquire(key.as_str())))
        });
        allocates_nothing("a refusal", || keys.iter().for_each(|key| decide(limiter.try_acquire_n(key, 2))));
        allocates_nothing("more than the burst", || {
            keys.iter().for_each(|key| decide(limiter.try_acquire_n(key.as_str(), 3)));
        });
        allocates_nothing("a look", || {
            for key in &keys {
                let _ = black_box(limiter.peek(key.as_str()).reset_after());
            }
        });
        allocates_nothing("a pinned handle", || {
            let pinned = limiter.pin();
            for key in &keys {
                decide(pinned.try_acquire(key.as_str()));
                decide(pinned.try_acquire_n(key.as_str(), 0));
                let _ = black_box(pinned.key(key.as_str()).peek());
            }
        });
        mock.advance(Duration::from_millis(500));
    }
    assert!(granted >= 3_000 && refused >= 3_000, "{granted} granted, {refused} refused");
    allocates_nothing("a look at an unknown key", || {
        let _ = black_box(limiter.peek("unknown"));
    });
    assert_eq!(limiter.len(), 1_000);
}

/// A key without room is not copied, whatever the policy.
#[test]
fn a_key_without_room_allocates_nothing() {
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        let (limiter, _mock) = limiter::<String>(Quota::per_hour(2), 100, policy);
        // The first key without room makes the buckets that such keys share.
        for key in 0..101 {
            assert_eq!(limiter.try_acquire(&format!("{key}")).is_ok(), key < 100 || policy != WhenFull::Deny);
        }
        let others: Vec<String> = (100..1_100).map(|key| format!("{key}")).collect();
        allocates_nothing("a key without room", || {
            for key in &others {
                let _ = black_box(limiter.try_acquire(key.as_str()));
            }
        });
    }
}

#[test]
fn a_call_that_takes_nothing_makes_nothing_of_its_key() {
    let (limiter, _mock) = limiter::<String>(Quota::per_hour(2), 100, WhenFull::Share);
    // The first call with a key makes the map.
    assert_eq!(limiter.peek("unknown").remaining(), 2);
    allocates_nothing("more than the burst of an unknown key", || {
        let _ = black_box(limiter.try_acquire_n("unknown", 3));
    });
    allocates_nothing("nothing of an unknown key", || {
        let _ = black_box(limiter.try_acquire_n("unknown", 0));
    });
    assert!(limiter.is_empty());
}

/// Returns the bytes that `make` leaves on the heap, and its value.
fn heap<T>(make: impl FnOnce() -> T) -> (i64, T) {
    let mut made = None;
    let counted = measure(|| made = Some(make()));
    (counted.bytes_current, made.expect("it was made"))
}

/// Most bytes of a limiter without a key, and most bytes more of its first key.
const SMALL: i64 = 600;

/// A limiter for each route, tenant or rule costs little until it is used. papaya's collector and
/// its counter of keys are papaya's own.
#[test]
fn a_limiter_without_a_key_is_small_and_so_is_its_first_key() {
    let (quota, window) = (Quota::per_second(5), Window::per_day(5).utc());
    // The first limiter of a process calibrates the clock, and the first map counts processors.
    assert!(RateLimiter::<u64>::new(quota).try_acquire(&1).is_ok());
    assert!(WindowCounter::new(window).try_acquire().is_ok());
    let papayas = || heap(papaya::HashMap::<u64, u64>::new).0;
    let papayas = papayas();
    println!("{papayas} bytes are papaya's own");
    let check = |name: &str, least: i64, empty: i64, first: &dyn Fn() -> bool, own: i64| {
        let mut granted = false;
        let first = measure(|| granted = first()).bytes_current - own;
        println!("{name}: {empty} bytes, {first} more with the first key");
        assert!(
            granted && empty <= least + SMALL && first <= SMALL,
            "{name}: {empty} bytes, then {first} more"
        );
    };

    let (empty, limiter) = heap(|| RateLimiter::<u64>::new(quota));
    assert_eq!((limiter.len(), limiter.evict_idle(), limiter.stats().keys), (0, 0, 0));
    limiter.clear();
    check("a map", 0, empty, &|| limiter.try_acquire(&1).is_ok(), papayas);
    // A set of two lines of 64 bytes, and seven slots to align it.
    let (empty, limiter) = heap(|| RateLimiter::<u64>::builder(quota).max_keys(1).inline().unwrap().build());
    check("a table", 240, empty, &|| limiter.try_acquire(&1).is_ok(), 0);
    let (empty, limiter) = heap(|| RateLimiter::<u64, _>::new(window));
    check("windows", 0, empty, &|| limiter.try_acquire(&1).is_ok(), papayas);
    let (empty, limiter) = heap(|| RateLimiter::<u64, _>::new(Places::new(2)));
    check("places", 0, empty, &|| limiter.try_acquire(&1).is_ok(), papayas);
    let (empty, bucket) = heap(|| Box::new(TokenBucket::new(quota)));
    check("a bucket", 0, empty, &|| bucket.try_acquire().is_ok(), 0);
    let (empty, window) = heap(|| Box::new(WindowCounter::new(window)));
    check("a window", 0, empty, &|| window.try_acquire().is_ok(), 0);
}

/// A map has room for ten thousand keys. A million keys never need more memory than the first
/// hundred thousand did. A quick run has an eighth of them.
#[test]
fn memory_stays_flat_under_a_flood() {
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        // No key is evicted while the clock stands still, and every key is once it moves.
        for step in [Duration::ZERO, Duration::from_millis(1)] {
            let (limiter, mock) = limiter::<u64>(Quota::per_second(1), 10_000, policy);
            let flood = |keys: Range<u64>| {
                measure(|| {
                    for key in keys {
                        let _ = limiter.try_acquire(&key);
                        mock.advance(step);
                    }
                })
            };
            let [few, all] = size([60_000, 120_000], [100_000, 1_000_000]);
            let (first, rest) = (flood(0..few), flood(few..all));
            let early = i64::try_from(first.bytes_max).expect("bytes");
            let late = first.bytes_current + i64::try_from(rest.bytes_max).expect("bytes");
            println!("{policy:?}, {step:?} a key: {early} bytes at most, then {late}; {:?}", limiter.stats());
            assert!(late * 10 <= early * 11, "{policy:?}, {step:?} a key: {early} bytes, then {late}");
            assert!(late < 2_000_000, "{late} bytes for ten thousand keys");
            assert!(limiter.len() <= 10_000);
            assert_eq!(limiter.stats().evicted > 0, step > Duration::ZERO);
        }
    }
}

/// `build` allocates the whole table. The first key, the first without room and the first removal
/// make the counts and the shared buckets, the first reservation the lines. New keys, evictions,
/// batches and every policy allocate nothing later.
#[test]
fn a_table_allocates_nothing_once_it_is_built() {
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        let (clock, mock) = Clock::mock();
        let quota = Quota::per_second(2);
        let mut built = None;
        let building = measure(|| {
            let builder =
                RateLimiter::<String>::builder(quota).clock(clock).headroom(Quota::per_second(4)).unwrap();
            built = Some(builder.max_keys(6_000).inline().unwrap().when_full(policy).build());
        });
        let limiter = built.expect("it was just built");
        // 8,000 places of 16 bytes.
        assert!((128_000..130_000).contains(&building.bytes_current), "{building:?}");
        let keys: Vec<String> =
            (0..size(10_000, 20_000)).map(|key| format!("the key of some length {key}")).collect();
        let asks: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
        let beside = measure(|| {
            // Each key, as any one of them may have found a place.
            keys.iter().for_each(|key| drop(limiter.key(key.as_str()).reserve()));
            limiter.clear();
        });
        // 1,024 shared buckets, as many counts of removals, and 64 parts of the lines of callers.
        assert!(beside.bytes_current < 21_000, "{beside:?}");
        mock.advance(Duration::from_secs(4));
        for round in 0..4 {
            allocates_nothing("a new key, or one without room", || {
                for key in &keys {
                    let _ = black_box(limiter.try_acquire(key.as_str()));
                }
            });
            allocates_nothing("a pinned handle", || {
                let pinned = limiter.pin();
                for key in &keys {
                    let _ = black_box(pinned.try_acquire_n(key.as_str(), 2));
                }
            });
            mock.advance(Duration::from_secs(4));
            allocates_nothing("a batch", || {
                let granted = limiter.try_acquire_batch(&asks).filter(|one| one.is_ok()).count();
                assert!(black_box(granted) >= 6_000);
            });
            allocates_nothing("the rest", || {
                let _ = black_box((
                    limiter.key("new").reserve().map(drop),
                    limiter.key("other").hold().map(drop),
                ));
                limiter.refund("other", 1);
                let _ = black_box((limiter.remove("new"), limiter.peek("unknown"), limiter.stats()));
                if round == 2 {
                    limiter.clear();
                }
                limiter.set_rule(Quota::per_second(2 + round % 2)).unwrap();
            });
            mock.advance(Duration::from_secs(8));
            allocates_nothing("a sweep", || {
                black_box(limiter.evict_idle());
            });
        }
        assert!(limiter.stats().evicted > 8_000, "{:?}", limiter.stats());
    }
}

#[test]
fn a_key_takes_little_and_gives_it_back() {
    const KEYS: u64 = 100_000;
    for presize in [0, KEYS as usize] {
        let all = measure(|| {
            let (clock, _mock) = Clock::mock();
            let mut built = None;
            let empty = measure(|| {
                let builder = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(clock);
                built = Some(builder.presize(presize).unwrap().build());
            });
            let limiter = built.expect("it was just built");
            let inserting = measure(|| {
                for key in 0..KEYS {
                    assert!(limiter.try_acquire(&key).is_ok());
                }
            });
            let bytes = inserting.bytes_current / KEYS as i64;
            println!("presize {presize}: {} bytes before, {bytes} more a key", empty.bytes_current);
            assert!(inserting.count_total >= KEYS, "each key has an entry of its own");
            // An entry is 24 bytes and its ticket 4. The map's table has the rest.
            assert!(bytes <= if presize > 0 { 32 } else { 128 }, "{bytes} bytes a key");
        });
        assert!(all.bytes_current.abs() <= 1 << 10, "{} bytes are left", all.bytes_current);
    }
}
