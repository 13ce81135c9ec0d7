// promise: bounded
//! Room in a map: the bound on its keys is exact, and the hand that turns on its ring finds the
//! room.

use std::collections::HashSet;

use tollgate::{Clock, Denied, Quota, RateLimiter, Reason, WhenFull, all_of};

use crate::support::{DAY, HOUR, Plain, SECOND, Time, Twin, fill, nanos, ns, ticks};

const MARGIN: u64 = 2 * SECOND;
const HOURLY: Quota = Quota::per_hour(1);

fn limiter(quota: Quota, max_keys: usize, policy: WhenFull) -> (RateLimiter<u64>, Time) {
    let (clock, time) = Time::new();
    (RateLimiter::builder(quota).clock(clock).max_keys(max_keys).when_full(policy).build(), time)
}

/// Returns the wait of a key that finds no room.
fn no_room(denied: Denied) -> u64 {
    assert_eq!((denied.reason(), denied.remaining()), (Reason::Full, 0));
    nanos(denied.retry_after().expect("there will be room some day"))
}

/// Returns the number of calls that look at each of the keys, at most: the first looks at 64,
/// and a later one at 4 or more.
fn turn(keys: u64) -> u64 {
    if keys <= 64 { 1 } else { keys.div_ceil(4) }
}

/// Returns a limiter of a thousand keys, of which `half` are due in an hour and the others in five.
fn half_are_due_in_an_hour(half: impl Fn(u64) -> bool) -> (RateLimiter<u64>, Time) {
    let (limiter, time) = limiter(Quota::per_hour(1).burst(5), 1_000, WhenFull::Deny);
    for key in 0..1_000 {
        assert!(limiter.try_acquire_n(&key, if half(key) { 1 } else { 5 }).is_ok());
    }
    (limiter, time)
}

/// A call looks at some buckets of the thousand. A turn of the hand shows when room is due, and the
/// next turn finds it.
#[test]
fn whoever_comes_back_when_told_finds_room() {
    for half in [(|key| key < 500) as fn(u64) -> bool, |key| key >= 500, |key| key % 2 == 0] {
        let (limiter, mut time) = half_are_due_in_an_hour(half);
        let mut calls = 1;
        while let Err(denied) = limiter.try_acquire(&5_000) {
            time.advance(no_room(denied));
            calls += 1;
            assert!(calls <= 2 * turn(1_000) + 1, "{calls} calls");
        }
        println!("{calls} calls, {} h", time.now() / HOUR);
        assert!(time.now() <= 6 * HOUR);
    }
}

/// `retry_after` is "when room for a new key may be due, at the earliest": there is none before.
#[test]
fn there_is_no_room_before_the_time_that_was_told() {
    for half in [(|key| key < 500) as fn(u64) -> bool, |key| key >= 500, |key| key % 2 == 0] {
        let (limiter, mut time) = half_are_due_in_an_hour(half);
        let wait = no_room(limiter.try_acquire(&5_000).expect_err("all are taken"));
        time.advance(HOUR + 3 * SECOND);
        let calls = (0..1_000).find(|_| limiter.try_acquire(&5_000).is_ok());
        if let Some(calls) = calls {
            assert!(
                wait <= time.now(),
                "told {wait} ns; after {} ns the call {calls} found room",
                time.now()
            );
        }
    }
}

/// Looks at each key in vain: none is due within the hour, and the hand rests.
fn rest(limiter: &RateLimiter<u64>) {
    let told = || no_room(limiter.try_acquire(&5_000).unwrap_err());
    let told = (0..turn(limiter.len() as u64)).map(|_| told()).find(|told| *told > 0);
    assert!(told >= Some(HOUR), "{told:?}");
}

/// Returns a limiter whose keys were taken empty, all but key 3, which has no entry.
fn drained(keys: u64) -> (RateLimiter<u64>, Time) {
    let (limiter, time) = limiter(Quota::per_hour(5), keys as usize, WhenFull::Deny);
    for key in (0..keys).filter(|key| *key != 3) {
        assert!(limiter.try_acquire_n(&key, 5).is_ok());
    }
    (limiter, time)
}

/// Checks that a newcomer finds room within two turns of the hand. Its refusals until then have a
/// wait of 0.
fn has_room(limiter: &RateLimiter<u64>, keys: u64, how: &str) {
    let most = if keys > 64 { 2 * turn(keys) } else { 1 };
    for _ in 1..most {
        match limiter.try_acquire(&5_000) {
            Ok(_) => return,
            Err(denied) => assert_eq!(no_room(denied), 0, "{how}: there is room for one of {keys} keys"),
        }
    }
    assert!(limiter.try_acquire(&5_000).is_ok(), "{how}: no room for one of {keys} keys");
}

/// Checks that a filled bucket is due after the margin, and that no newcomer is told a longer wait.
fn has_room_after_the_margin(limiter: &RateLimiter<u64>, time: &mut Time, keys: u64, how: &str) {
    let margin = MARGIN + ticks(Quota::per_hour(5), 2);
    for _ in 0..=turn(keys) {
        let wait = no_room(limiter.try_acquire(&5_000).unwrap_err());
        assert!(wait <= margin, "{how}: a wait of {wait} ns with {keys} keys");
    }
    time.advance(margin);
    has_room(limiter, keys, how);
}

const SIZES: [u64; 4] = [5, 64, 65, 1_000];

#[test]
fn a_newcomer_finds_the_room_of_a_key_that_is_removed() {
    type Way = fn(&RateLimiter<u64>);
    let ways: [(&str, Way); 2] =
        [("remove", |limiter| assert!(limiter.remove(&3))), ("clear", |limiter| limiter.clear())];
    for (how, make_room) in ways {
        for keys in SIZES {
            let (limiter, _time) = drained(keys);
            assert!(limiter.try_acquire_n(&3, 5).is_ok());
            rest(&limiter);
            make_room(&limiter);
            has_room(&limiter, keys, how);
        }
    }
}

#[test]
fn a_newcomer_finds_the_room_that_evict_idle_made() {
    for keys in SIZES {
        let (limiter, mut time) = drained(keys);
        assert!(limiter.try_acquire_n(&3, 5).is_ok());
        rest(&limiter);
        limiter.refund(&3, 5);
        time.advance(3 * SECOND);
        assert_eq!(limiter.evict_idle(), 1);
        has_room(&limiter, keys, "evict_idle");
    }
}

#[test]
fn a_newcomer_finds_the_room_of_a_bucket_that_is_filled() {
    for keys in SIZES {
        let (limiter, mut time) = drained(keys);
        assert!(limiter.try_acquire_n(&3, 5).is_ok());
        rest(&limiter);
        limiter.refund(&3, 5);
        has_room_after_the_margin(&limiter, &mut time, keys, "refund");

        let (limiter, mut time) = drained(keys);
        let reserved = limiter.key(&3).n(5).reserve().unwrap();
        rest(&limiter);
        drop(reserved);
        has_room_after_the_margin(&limiter, &mut time, keys, "reserve");

        let (limiter, mut time) = drained(keys);
        let hold = limiter.key(&3).n(5).hold().unwrap();
        rest(&limiter);
        assert_eq!(hold.settle(0), 0);
        has_room_after_the_margin(&limiter, &mut time, keys, "hold");

        let (limiter, mut time) = drained(keys);
        let full = RateLimiter::<u64>::builder(HOURLY).clock(Clock::mock().0).max_keys(0);
        let full = full.when_full(WhenFull::Deny).on_decision({
            let limiter = limiter.clone();
            move |_| rest(&limiter)
        });
        let full = full.build();
        let denied = all_of((limiter.key(&3).n(5), full.key(&1))).try_acquire().unwrap_err();
        assert_eq!((denied.which(), limiter.peek(&3).remaining()), (1, 5));
        has_room_after_the_margin(&limiter, &mut time, keys, "all_of");
    }
}

#[test]
fn with_no_room_at_all_the_policy_decides_on_every_key() {
    let quota = Quota::per_second(1).burst(3);
    let (shared, _) = limiter(quota, 0, WhenFull::Share);
    assert!(shared.try_acquire_n(&1, 3).is_ok() && shared.try_acquire(&1).is_err());
    let (denying, mut time) = limiter(quota, 0, WhenFull::Deny);
    let denied = denying.try_acquire(&1).expect_err("no key has a place");
    assert_eq!((denied.reason(), denied.retry_after(), denied.remaining()), (Reason::Full, None, 0));
    time.advance(DAY);
    assert_eq!(denying.try_acquire(&1), Err(denied), "nor ever will");
    let (allowing, _) = limiter(quota, 0, WhenFull::Allow);
    for _ in 0..10 {
        assert_eq!(allowing.try_acquire_n(&1, 2).map(|granted| granted.remaining()), Ok(1));
    }
    assert!(allowing.try_acquire_n(&1, 4).is_err(), "more than the burst is too many for anyone");
    for limiter in [&shared, &denying, &allowing] {
        assert!(limiter.is_empty() && limiter.evict_idle() == 0 && !limiter.remove(&1));
    }
    let counted = [&shared, &denying, &allowing].map(|limiter| limiter.stats());
    assert_eq!(
        counted.map(|s| [s.shared, s.refused_full, s.allowed_full]),
        [[2, 0, 0], [0, 2, 0], [0, 0, 10]]
    );
}

/// Eight keys of one hash have a bucket each, and each can be evicted. The ninth is a key without
/// room.
#[test]
fn eight_keys_of_one_hash_have_buckets_of_their_own() {
    let (clock, mut time) = Time::new();
    let limiter =
        RateLimiter::<Twin>::builder(Quota::per_second(5)).hasher(Plain::default()).clock(clock).max_keys(50);
    let limiter = limiter.when_full(WhenFull::Deny).build();
    let twin = |id| Twin { hash: 0, id };
    for id in 0..8 {
        assert!(limiter.try_acquire_n(&twin(id), 5).is_ok(), "{id} starts full");
        assert!(limiter.try_acquire(&twin(id)).is_err());
    }
    let denied = limiter.try_acquire(&twin(8)).expect_err("eight are held");
    assert_eq!(denied.retry_after(), Some(ns(2 * SECOND)), "none of them is forgotten sooner");
    no_room(denied);
    time.advance(10 * SECOND);
    assert_eq!((limiter.evict_idle(), limiter.len()), (8, 0));
    // The hand evicts them as well: it looks for an entry by its hash and ticket.
    for round in 0..100 {
        for id in 0..8 {
            assert!(limiter.try_acquire_n(&twin(id), 5).is_ok(), "{id} finds room");
        }
        for other in 0..50 {
            let _ = limiter.try_acquire_n(&Twin { hash: (1 + other) << 40, id: round }, 5);
        }
        assert_eq!(limiter.len(), 50);
        time.advance(10 * SECOND);
    }
}

/// papaya yields an entry twice while it grows its table. Four keys were counted as eight, and the
/// next was turned away. (Found by the fuzz target `keyed`.)
#[test]
fn keys_of_one_hash_are_counted_once_while_the_map_grows() {
    for keys in 1..8 {
        let (clock, mut time) = Time::new();
        let limiter = RateLimiter::<Twin>::builder(Quota::per_second(5))
            .hasher(Plain::default())
            .clock(clock)
            .max_keys(keys);
        let limiter = limiter.when_full(WhenFull::Deny).build();
        for id in 0..600 {
            if id % keys as u64 == 0 {
                time.advance(10 * SECOND);
            }
            let found = limiter.try_acquire(&Twin { hash: 0, id });
            assert!(found.is_ok(), "{id} of {keys} finds the place of one that is idle");
        }
    }
}

/// The law holds for each of many keys of one hash, and no call hangs.
#[test]
fn ten_thousand_keys_of_one_hash_share() {
    let (clock, _time) = Time::new();
    let limiter =
        RateLimiter::<Twin>::builder(Quota::per_hour(5)).hasher(Plain::default()).clock(clock).build();
    let granted = (0..10_000).filter(|id| limiter.try_acquire(&Twin { hash: 0, id: *id }).is_ok()).count();
    assert_eq!((granted, limiter.len()), (8 + 5, 8));
}

/// A key that took a burst outside of the map does not get another inside. (Room may be made by an
/// eviction too: `keyed/ring.rs`.)
#[test]
fn a_key_that_enters_the_map_brings_its_debts() {
    let quota = Quota::per_hour(1).burst(5);
    let (removed, mut time) = limiter(quota, 1, WhenFull::Share);
    assert!(removed.try_acquire(&1).is_ok());
    assert!(removed.try_acquire_n(&2, 4).is_ok());
    assert!(removed.remove(&1));
    assert_eq!(removed.peek(&2).remaining(), 1);
    assert_eq!(removed.try_acquire(&2).map(|granted| granted.remaining()), Ok(0));
    let denied = removed.try_acquire(&2).expect_err("it had its burst");
    assert_eq!((denied.retry_after(), removed.len()), (Some(ns(HOUR)), 1));
    time.advance(HOUR - 1);
    assert!(removed.try_acquire(&2).is_err());
    time.advance(1);
    assert!(removed.try_acquire(&2).is_ok());
}

/// A key that is refused when it enters and never comes back does not keep its entry for ever.
#[test]
fn a_key_that_was_refused_when_it_entered_can_be_evicted() {
    let quota = Quota::per_hour(1).burst(5);
    let (limiter, mut time) = limiter(quota, 1, WhenFull::Share);
    assert!(limiter.try_acquire(&1).is_ok());
    time.set(HOUR);
    assert!(limiter.try_acquire_n(&2, 5).is_ok());
    time.set(HOUR + 3 * SECOND);
    assert!(limiter.try_acquire(&2).is_err());
    assert_eq!((limiter.len(), limiter.evict_idle()), (1, 0));
    time.set(HOUR + fill(quota) + MARGIN - 1);
    assert_eq!(limiter.evict_idle(), 0);
    time.advance(1 + ticks(quota, 2));
    assert_eq!((limiter.evict_idle(), limiter.len()), (1, 0));
}

#[test]
fn a_key_that_is_removed_starts_anew_and_no_other_does() {
    let (limiter, _time) = limiter(Quota::per_hour(5), 100, WhenFull::Deny);
    for key in 0..100 {
        assert!(limiter.try_acquire_n(&key, 5).is_ok());
    }
    for key in 0..100 {
        assert!(limiter.remove(&key) && !limiter.remove(&key));
        assert!(limiter.try_acquire(&((key + 1) % 100)).is_err(), "others stay as they are");
        assert_eq!(limiter.peek(&key).remaining(), 5);
        // 64 looks may miss the one free place. Two calls look at all.
        let calls = (1..=25).find(|_| limiter.try_acquire_n(&key, 5).is_ok());
        assert!(calls.is_some(), "no room for {key} again");
        assert!(limiter.len() == 100 && limiter.try_acquire(&key).is_err());
    }
}

/// The bound counts keys that are held: a key that went and came back is one.
#[test]
fn a_key_that_comes_back_takes_one_place() {
    type Way = fn(&RateLimiter<u64>);
    let ways: [(&str, Way); 3] = [
        ("remove", |limiter| assert!(limiter.remove(&1))),
        ("clear", |limiter| limiter.clear()),
        ("evict_idle", |limiter| assert_eq!(limiter.evict_idle(), 1)),
    ];
    for (how, goes) in ways {
        for room in [2, 10, 1_000] {
            let (limiter, mut time) = limiter(Quota::per_second(1), room, WhenFull::Deny);
            for _ in 0..room {
                assert!(limiter.try_acquire(&1).is_ok());
                time.advance(4 * SECOND);
                goes(&limiter);
            }
            assert!(limiter.try_acquire(&1).is_ok());
            let second = limiter.try_acquire(&2);
            assert!(second.is_ok(), "{how}: {} of {room} places are taken, but {second:?}", limiter.len());
        }
    }
}

#[test]
fn a_limiter_that_is_cleared_starts_anew() {
    let (limiter, mut time) = limiter(Quota::per_hour(5), 100, WhenFull::Deny);
    for round in 0..5 {
        for key in 0..100 {
            assert!(limiter.try_acquire_n(&(key + round), 5).is_ok(), "{key} in round {round}");
        }
        no_room(limiter.try_acquire(&1_000).expect_err("all are taken"));
        limiter.clear();
        assert_eq!((limiter.len(), limiter.stats().evicted), (0, 0));
    }
    limiter.clear();
    // Evicting all keys starts it anew as well.
    for _ in 0..5 {
        let keys: HashSet<u64> = (0..100).map(|key| key + time.now()).collect();
        assert!(keys.iter().all(|key| limiter.try_acquire_n(key, 5).is_ok()));
        time.advance(HOUR + 3 * SECOND);
        assert_eq!((limiter.evict_idle(), limiter.len()), (100, 0));
    }
    assert_eq!(limiter.stats().evicted, 500);
}

#[test]
fn a_limiter_made_large_ahead_holds_no_more_than_its_bound() {
    for (presize, room) in [(0, 10), (10, 10), (100_000, 10), (1 << 20, 10), (1_000, 100_000), (5, 0)] {
        let (clock, _time) = Time::new();
        let limiter = RateLimiter::<u64>::builder(Quota::per_hour(1)).clock(clock);
        let limiter = limiter.max_keys(room).presize(presize).unwrap().when_full(WhenFull::Deny).build();
        let granted = (0..1_000).filter(|key| limiter.try_acquire(key).is_ok()).count();
        assert_eq!((granted, limiter.len()), (room.min(1_000), room.min(1_000)));
    }
}

/// The hand rests until a key can be due. A sweep that evicts none does not change that time.
#[test]
fn a_sweep_that_evicts_no_key_leaves_the_hand_at_rest() {
    let (limiter, _time) = drained(200);
    assert!(limiter.try_acquire_n(&3, 5).is_ok());
    rest(&limiter);
    let wait = no_room(limiter.try_acquire(&5_000).unwrap_err());
    assert!(wait >= HOUR, "{wait}");
    assert_eq!(limiter.evict_idle(), 0);
    assert_eq!(no_room(limiter.try_acquire(&5_000).unwrap_err()), wait);
}
