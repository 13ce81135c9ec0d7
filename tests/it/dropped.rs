//! A dropped reservation gives back all its tokens if it is the last in line, else none.

use tollgate::{Quota, RateLimiter, Reason, WhenFull};

use super::face::{Face, Set, on_each, on_each_of};
use super::{InStore, Room, crowd, in_table};
use crate::support::{Plain, Random, SECOND, Time, nanos, ns};

const MS: u64 = 1_000_000;

/// 100 ms a token.
const TEN: Quota = Quota::per_second(10).burst(5);

fn in_debt(debt: u64) -> Set {
    Set { max_debt: Some(debt), ..Set::of(TEN) }
}

/// Returns the wait for one more token.
fn next(face: &dyn Face) -> u64 {
    nanos(face.reserve(1).expect("there is room for one more").delay())
}

#[test]
fn the_last_in_line_gives_all_back_and_who_was_overtaken_nothing() {
    on_each(in_debt(100), |face, _| {
        assert!(face.try_n(5).is_ok());
        let [a, b, c] = [1, 2, 3].map(|n| face.reserve(n).unwrap());
        assert_eq!(next(face), 700 * MS);
        drop(a);
        assert_eq!(next(face), 700 * MS, "two are behind it");
        drop(c);
        assert_eq!(next(face), 400 * MS);
        drop(b);
        assert_eq!(next(face), 200 * MS);

        let line = [5, 4, 3, 2, 1].map(|n| face.reserve(n).unwrap());
        assert_eq!(next(face), 1_700 * MS);
        for slot in line.into_iter().rev() {
            drop(slot);
        }
        assert_eq!(next(face), 200 * MS, "the last first: all of it came back");
    });
}

#[test]
fn whatever_the_order_of_drops_only_the_end_of_the_line_comes_back() {
    on_each(in_debt(10_000), |face, _| {
        let mut random = Random(2);
        assert!(face.try_n(5).is_ok());
        let mut owed = 0;
        for round in 0..200 {
            let mut line: Vec<_> = (0..1 + random.below(6))
                .map(|_| {
                    let n = 1 + random.below(5);
                    owed += n;
                    Some((n, owed, face.reserve(n).unwrap()))
                })
                .collect();
            for _ in 0..line.len() {
                let place = random.below(line.len() as u64) as usize;
                let Some((n, mark, slot)) = line[place].take() else { continue };
                if random.below(4) == 0 {
                    let _ = slot.commit();
                } else {
                    drop(slot);
                    owed -= if mark == owed { n } else { 0 };
                }
                assert_eq!(next(face), (owed + 1) * 100 * MS, "round {round}");
            }
            while let Some(slot) = line.pop() {
                if let Some((_, _, slot)) = slot {
                    let _ = slot.commit();
                }
            }
        }
    });
}

#[test]
fn a_commit_gives_nothing_back() {
    on_each_of(TEN, |face, _| {
        let granted = face.reserve(5).unwrap().commit();
        assert_eq!((granted.tokens(), granted.remaining(), face.peek().remaining()), (5, 0, 0));
        let _ = face.reserve(2).unwrap().commit();
        assert_eq!(next(face), 300 * MS);
    });
}

/// A plain take stands behind a reservation too, and a refusal and a look do not.
#[test]
fn any_take_overtakes_and_no_refusal_does() {
    on_each_of(TEN, |face, _| {
        let slot = face.reserve(2).unwrap();
        assert!(face.try_n(4).is_err() && face.try_n(0).is_ok() && face.peek().remaining() == 3);
        assert!(face.reserve(6).is_err() && face.reserve(0).is_ok() && face.up_to(0).tokens() == 0);
        drop(slot);
        assert_eq!(face.peek().remaining(), 5);

        for plain in [true, false] {
            let slot = face.reserve(2).unwrap();
            let _ = if plain { face.try_n(1).unwrap() } else { face.reserve(1).unwrap().commit() };
            drop(slot);
            assert_eq!(face.peek().remaining(), 2);
            face.refund(5);
        }
    });
}

#[test]
fn a_drop_after_its_time_gives_back_below_the_burst() {
    for (later, left) in [(0, 5), (499 * MS, 5), (SECOND, 5), (60 * SECOND, 5)] {
        on_each_of(TEN, |face, mut time| {
            let slot = face.reserve(5).unwrap();
            time.advance(later);
            drop(slot);
            assert_eq!(face.peek().remaining(), left, "{later} ns later");
            assert!(face.try_n(5).is_ok() && face.try_n(1).is_err());
        });
    }
    on_each_of(TEN, |face, mut time| {
        let _ = face.reserve(5).unwrap().commit();
        let slot = face.reserve(4).unwrap();
        time.advance(450 * MS);
        drop(slot);
        assert_eq!(face.peek().remaining(), 4);
        time.advance(50 * MS);
        assert_eq!(face.peek().remaining(), 5);
    });
}

/// All tokens come back until a call adopts the new time, and none after that. Never do more come
/// back than were taken.
#[test]
fn a_drop_after_the_clock_was_set_back_mints_nothing() {
    for back in [1, SECOND, 4 * SECOND, 5 * SECOND, 600 * SECOND] {
        for noticed in [false, true] {
            on_each_of(TEN, |face, mut time| {
                time.set(1_000 * SECOND);
                let _ = face.reserve(5).unwrap().commit();
                let slot = face.reserve(3).unwrap();
                time.set(1_000 * SECOND - back);
                if noticed {
                    assert!(face.try_n(1).is_err());
                }
                drop(slot);
                let adopted = noticed && back > 4 * SECOND;
                let lag = if back > 4 * SECOND { 0 } else { back };
                let owed = if adopted { 3 } else { 0 };
                assert_eq!(face.peek().remaining(), 0);
                // The time is exact to whole ticks, of at least 2^-13 tokens.
                let (delay, due) = (next(face), lag + (owed + 1) * 100 * MS);
                assert!(
                    delay.abs_diff(due) <= (100 * MS) >> 12,
                    "back by {back}, {noticed}: {delay}, not {due}"
                );
            });
        }
    }
}

#[test]
fn nothing_is_reserved_at_once_and_gives_nothing_back() {
    on_each_of(TEN, |face, _| {
        for _ in 0..2 {
            let slot = face.reserve_within(0, 0).unwrap();
            assert_eq!((slot.delay(), slot.ready_at()), (ns(0), face.now()));
            drop(slot);
            assert_eq!(face.reserve(0).unwrap().commit().tokens(), 0);
            let _ = face.reserve(5).map(|slot| slot.commit());
        }
        assert_eq!(face.reserve(1).unwrap_err().reason(), Reason::Debt);
    });
}

#[test]
fn a_key_that_was_forgotten_and_came_back_gets_nothing_of_an_old_reservation() {
    for by_hand in [false, true] {
        let (clock, mut time) = Time::new();
        let limiter = RateLimiter::<u64>::stored(TEN).clock(clock).build();
        let (old, other) = (limiter.key(&1).n(4).reserve().unwrap(), limiter.key(&1).reserve().unwrap());
        time.advance(10 * SECOND);
        if by_hand {
            assert!(limiter.remove(&1))
        } else {
            assert_eq!(limiter.evict_idle(), 1)
        }
        drop(other);
        assert!(limiter.is_empty() && limiter.peek(&1).remaining() == 5);
        assert!(limiter.try_acquire_n(&1, 5).is_ok());
        drop(old);
        assert_eq!(limiter.peek(&1).remaining(), 0);
    }
}

#[test]
fn without_room_the_policy_says_who_waits() {
    let built = |policy| {
        let (clock, _time) = Time::new();
        RateLimiter::<u64>::stored(TEN).clock(clock).when_full(policy).with_places(0)
    };
    let share = built(WhenFull::Share);
    let slots = [3, 3].map(|n| share.key(&1).n(n).reserve().unwrap());
    assert_eq!(slots.each_ref().map(|slot| slot.delay()), [ns(0), ns(100 * MS)]);
    for slot in slots.into_iter().rev() {
        drop(slot);
    }
    assert_eq!((share.peek(&1).remaining(), share.len()), (5, crowd()));

    let deny = built(WhenFull::Deny);
    assert_eq!(deny.key(&1).reserve().unwrap_err().reason(), Reason::Full);
    assert!(deny.key(&1).n(0).reserve().is_ok());

    let allow = built(WhenFull::Allow);
    for _ in 0..10 {
        let slot = allow.key(&1).n(3).reserve().unwrap();
        assert_eq!((slot.delay(), slot.commit().remaining()), (ns(0), 2));
    }
    assert_eq!(allow.key(&1).n(6).reserve().unwrap_err().reason(), Reason::TooMany);
}

const OF_TEN: Quota = Quota::per_second(1).burst(10);
/// A map of one place uses a ticket again. In a table, a place is free only some time after its key
/// has left.
fn places() -> usize {
    if in_table() { 4 } else { 1 }
}

/// A removed key starts anew. A reservation from before gives nothing to the next bucket, though
/// that is at the same level as the old one.
#[test]
fn a_reservation_of_a_removed_key_gives_nothing_to_its_next_bucket() {
    for clear in [false, true] {
        let (clock, _time) = Time::new();
        let limiter = RateLimiter::<u64>::stored(OF_TEN).clock(clock).with_places(places());
        let remove = || if clear { limiter.clear() } else { assert!(limiter.remove(&1)) };
        // The second removal differs from the first by its count alone.
        for _removal in 0..2 {
            let old = limiter.key(&1).n(4).reserve().unwrap();
            remove();
            let new = limiter.key(&1).n(4).reserve().unwrap();
            drop(old);
            assert_eq!(limiter.peek(&1).remaining(), 6, "14 granted of a bucket of 10");
            // The new reservation is the last in line all the same.
            drop(new);
            assert_eq!(limiter.peek(&1).remaining(), 10);
        }
    }
}

/// A hold is not settled with the key's next bucket, either.
#[test]
fn a_hold_of_a_removed_key_is_not_settled_with_its_next_bucket() {
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(OF_TEN).clock(clock).with_places(places());
    let (over, under) = (limiter.key(&1).n(4).hold().unwrap(), limiter.key(&1).hold().unwrap());
    assert!(limiter.remove(&1));
    assert!(limiter.try_acquire_n(&1, 5).is_ok());
    assert_eq!(over.settle(1), 0);
    assert_eq!(limiter.peek(&1).remaining(), 5, "nothing comes back");
    assert_eq!(under.settle(3), 2, "the rest is not counted");
    assert_eq!(limiter.peek(&1).remaining(), 5);
}

/// A reservation keeps its tokens when another key is removed.
#[test]
fn a_reservation_outlives_the_removal_of_others() {
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<u64, Quota, Plain>::stored(OF_TEN).clock(clock).build();
    let held = limiter.key(&1).n(4).reserve().unwrap();
    for other in (2..50).map(|key| key * 1_000) {
        assert!(limiter.try_acquire(&other).is_ok() && limiter.remove(&other));
    }
    drop(held);
    assert_eq!(limiter.peek(&1).remaining(), 10);
}

/// Some of 10,000 keys share its count of removals. (In a table, `Plain` gives keys 2 and 3 its
/// fingerprint.)
#[test]
fn a_reservation_outlives_the_next_removal_of_any_other_key() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64, Quota, Plain>::stored(OF_TEN).clock(clock).build();
    for other in (2..10_000).map(|key| 2 * key) {
        let held = limiter.key(&1).n(4).reserve().unwrap();
        assert!(limiter.try_acquire(&other).is_ok() && limiter.remove(&other));
        drop(held);
        assert_eq!(limiter.peek(&1).remaining(), 10, "after the removal of {other}");
        // The place in a table is free again.
        time.advance(3 * SECOND);
    }
}
