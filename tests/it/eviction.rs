// promise: one-bucket
//! Evictions: of which keys, when to the nanosecond, and the keys that find no room.

use std::time::Duration;

use tollgate::{Denied, Quota, RateLimiter, Reason, WhenFull};

use super::{InStore, Room, in_table, with_one};
use crate::support::{DAY, HOUR, Plain, SECOND, Time, Twin, nanos, ns, ticks};

const MARGIN: u64 = 2 * SECOND;

/// Returns a limiter with room for `places` keys. Other keys fill the rest of a table, and have no
/// tokens at this reading.
fn limiter(start: u64, quota: Quota, places: usize, policy: WhenFull) -> (RateLimiter<u64>, Time) {
    let (clock, mut time) = Time::new();
    time.set(start);
    (RateLimiter::stored(quota).clock(clock).when_full(policy).with_places(places), time)
}

/// Returns the wait of a key that finds no room.
fn no_room(denied: Denied) -> u64 {
    assert_eq!((denied.reason(), denied.remaining()), (Reason::Full, 0));
    nanos(denied.retry_after().expect("there will be room some day"))
}

/// A bucket goes after 2 s of being full, in whole ticks and one more, and not a nanosecond
/// earlier. The ring's hand and `evict_idle` agree.
#[test]
fn a_bucket_is_evicted_once_it_was_full_for_the_margin_and_not_before() {
    let quotas = [
        Quota::per_second(1),
        Quota::per_second(10).burst(5),
        Quota::per_second(7).burst(10),
        Quota::per_second(1_000_000).burst(10),
        Quota::per_second(1_000_000_000).burst(1_000_000),
        Quota::per_hour(1_000),
        Quota::per_day(5),
        Quota::every(ns(365 * DAY)),
        Quota::every(Duration::from_nanos(3)).burst(10),
    ];
    for quota in quotas {
        for (start, taken) in
            [(0, 1), (999_999_937, quota.capacity()), (DAY + 1, quota.capacity().div_ceil(2))]
        {
            let (by_hand, mut hand_time) = limiter(start, quota, 1, WhenFull::Deny);
            let (by_sweep, mut sweep_time) = limiter(start, quota, 8, WhenFull::Deny);
            let granted = by_hand.try_acquire_n(&1, taken).expect("it starts full");
            assert!(by_sweep.try_acquire_n(&1, taken).is_ok());
            let wait = no_room(by_hand.try_acquire(&2).expect_err("key 1 is not idle"));

            let full_in = nanos(granted.reset_after());
            let earliest = full_in + MARGIN;
            let at = format!("{quota}, {taken} at {start}: full in {full_in} ns, due in {wait} ns");
            assert!((earliest..=earliest + ticks(quota, 2)).contains(&wait), "{at}");
            for early in [1, wait / 2, wait - full_in, wait - 1] {
                hand_time.set(start + wait - early);
                sweep_time.set(start + wait - early);
                assert_eq!(by_sweep.evict_idle(), 0, "{at}");
                assert_eq!(no_room(by_hand.try_acquire(&2).expect_err(&at)), early, "{at}");
            }
            hand_time.set(start + wait);
            sweep_time.set(start + wait);
            assert_eq!((by_sweep.evict_idle(), by_sweep.len()), (1, 0), "{at}");
            assert!(by_hand.try_acquire(&2).is_ok(), "{at}");
            assert_eq!((by_hand.len(), by_hand.stats().evicted), (with_one(), 1), "{at}");
        }
    }
}

/// A take starts the margin anew. A look, a refusal and a clock that is set back do not evict.
#[test]
fn whoever_takes_stays() {
    let quota = Quota::per_second(1).burst(2);
    let (limiter, mut time) = limiter(DAY, quota, 8, WhenFull::Deny);
    for round in 1..50 {
        assert!(limiter.try_acquire(&1).is_ok());
        time.advance(3 * SECOND - 1);
        assert!(limiter.peek(&1).remaining() == 2 && limiter.try_acquire_n(&1, 3).is_err());
        assert_eq!(limiter.evict_idle(), 0, "round {round}");
    }
    let evictable_at = time.now() + MARGIN;
    time.set(evictable_at - 3 * HOUR / 4);
    assert_eq!(limiter.evict_idle(), 0);
    time.set(evictable_at - HOUR / 2);
    assert_eq!(limiter.evict_idle(), 0);
    time.set(evictable_at);
    assert_eq!(limiter.evict_idle(), 1);
}

/// A newcomer looks at every bucket of up to 64 keys of a map, or of a table of one set. Its wait
/// is exact, again and again.
#[test]
fn a_newcomer_finds_room_when_it_was_told() {
    for room in if in_table() { &[8][..] } else { &[1, 2, 4, 5, 63, 64] } {
        let room = *room;
        let (limiter, mut time) = limiter(0, Quota::per_second(10).burst(30), room, WhenFull::Deny);
        for key in 0..room as u64 {
            time.advance(1_000_003);
            assert!(limiter.try_acquire_n(&key, key % 29 + 1).is_ok());
        }
        for newcomer in 1_000..1_200 {
            let wait = no_room(limiter.try_acquire(&newcomer).expect_err("all are taken"));
            assert!(wait > 0);
            time.advance(wait - 1);
            let early = no_room(limiter.try_acquire(&newcomer).expect_err("a nanosecond early"));
            assert_eq!(early, 1, "room for {room}, newcomer {newcomer}");
            time.advance(1);
            assert!(
                limiter.try_acquire_n(&newcomer, newcomer % 23 + 1).is_ok(),
                "room for {room}, {newcomer}"
            );
            assert_eq!(limiter.len(), room);
        }
        assert_eq!(limiter.stats().evicted, 200);
    }
}

#[test]
fn keys_without_room_share_by_hash() {
    let quota = Quota::per_hour(5);
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<Twin, Quota, Plain>::stored(quota).clock(clock).with_places(1);
    let twin = |hash, id| Twin { hash, id };
    assert!(limiter.try_acquire(&twin(1 << 50, 0)).is_ok(), "the one with a place");
    assert!(limiter.try_acquire_n(&twin(7, 1), 3).is_ok());
    assert_eq!(limiter.peek(&twin(7, 2)).remaining(), 2, "the law holds for both together");
    assert!(limiter.try_acquire_n(&twin(7, 2), 3).is_err());
    assert!(limiter.try_acquire_n(&twin(7, 2), 2).is_ok());
    assert!(limiter.try_acquire(&twin(7, 1)).is_err());
    // Few other hashes share that bucket, and never a key that has a place.
    let also = (8..1_000).filter(|hash| limiter.peek(&twin(*hash, 0)).remaining() < 5).count();
    assert!(also <= 10, "{also} of 992 other hashes share that bucket of 1,024");
    assert_eq!(limiter.peek(&twin(1 << 50, 0)).remaining(), 4);
}

/// A key that took a burst while it shared a bucket does not get another in a place of its own.
#[test]
fn a_key_that_gets_a_place_brings_its_debts() {
    let quota = Quota::per_hour(1).burst(5);
    // The key may be refused when it enters.
    let (evicted, mut time) = limiter(0, quota, 1, WhenFull::Share);
    assert!(evicted.try_acquire(&1).is_ok());
    time.set(HOUR);
    assert!(evicted.try_acquire_n(&2, 5).is_ok());
    time.set(HOUR + 3 * SECOND);
    let denied = evicted.try_acquire(&2).expect_err("it had its burst");
    assert_eq!(denied.retry_after(), Some(ns(HOUR - 3 * SECOND)));
    assert_eq!((evicted.len(), evicted.stats().evicted, evicted.stats().shared), (with_one(), 1, 1));
    time.set(2 * HOUR - 1);
    assert!(evicted.try_acquire(&2).is_err());
    time.set(2 * HOUR);
    assert_eq!(evicted.try_acquire(&2).map(|granted| granted.remaining()), Ok(0));
}
