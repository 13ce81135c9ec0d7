//! The decision hook sees every decision once, before shadow mode, which refuses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{Clock, Denied, Granted, Quota, RateLimiter, Reason, WhenFull, all_of};

use super::face::{Set, on_each};
use super::{InStore, Room, crowd};
use crate::support::{SECOND, ns};

const FIVE: Quota = Quota::per_second(5);

type Seen = Arc<Mutex<Vec<Result<Granted, Denied>>>>;

/// Returns a short form of the decisions since the last call.
fn seen(list: &Seen) -> Vec<Result<u64, Reason>> {
    let taken = std::mem::take(&mut *list.lock().unwrap());
    taken
        .iter()
        .map(|decision| decision.map(|granted| granted.tokens()).map_err(|denied| denied.reason()))
        .collect()
}

fn watched(shadow: bool) -> (Set, Seen) {
    let list = Seen::default();
    let into = list.clone();
    let hook = Arc::new(move |decision: &Result<Granted, Denied>| into.lock().unwrap().push(*decision));
    (Set { shadow, hook: Some(hook), ..Set::of(FIVE) }, list)
}

#[test]
fn every_decision_is_seen_once() {
    let (set, list) = watched(false);
    on_each(set, |face, _| {
        seen(&list);
        let expect = |what: &[Result<u64, Reason>]| assert_eq!(seen(&list), what);
        let _ = (face.try_n(1), face.try_n(2));
        expect(&[Ok(1), Ok(2)]);
        let _ = (face.try_n(0), face.try_n(3), face.try_n(6));
        expect(&[Ok(0), Err(Reason::Empty), Err(Reason::TooMany)]);
        let _ = face.try_at(face.now(), 1);
        expect(&[Ok(1)]);
        let _ = (face.up_to(9), face.up_to(9), face.up_to(0));
        expect(&[Ok(1), Err(Reason::Empty), Ok(0)]);
        let slot = face.reserve(5).unwrap();
        assert_eq!(slot.delay(), ns(SECOND));
        drop(slot);
        let _ = (face.reserve_within(1, 0).map(drop), face.reserve(6).map(drop));
        expect(&[Ok(5), Err(Reason::Empty), Err(Reason::TooMany)]);
        let _ = face.hold(1).map(drop);
        expect(&[Err(Reason::Empty)]);
        face.refund(5);
        let _ = face.peek();
        assert_eq!(face.hold(2).unwrap().settle(4), 0);
        expect(&[Ok(2)]);
        assert_eq!(face.overruled(), 0);
    });
}

#[test]
fn shadow_mode_refuses_nothing_and_counts_what_would_have_been() {
    let (set, list) = watched(true);
    on_each(set, |face, _| {
        assert!(face.try_n(5).is_ok());
        seen(&list);
        let over = face.overruled();
        let granted = [face.try_n(1), face.try_n(6), face.try_n(u64::MAX), face.try_at(face.now(), 2)];
        let granted = granted.map(|granted| granted.map(|granted| (granted.tokens(), granted.remaining())));
        assert_eq!(granted, [Ok((1, 0)), Ok((6, 0)), Ok((u64::MAX, 0)), Ok((2, 0))]);
        assert_eq!((face.overruled() - over, face.up_to(9).tokens()), (4, 9));
        let slots = [1, 5, 6].map(|n| face.reserve(n).unwrap());
        assert!(slots.iter().all(|slot| slot.delay().is_zero() && slot.ready_at() == face.now()));
        drop(slots);
        assert_eq!(face.overruled() - over, 8);
        for actual in [0, 3, 20] {
            assert_eq!(face.hold(3).unwrap().settle(actual), actual.saturating_sub(3));
        }
        assert_eq!(face.reserve_within(3, 0).unwrap().commit().tokens(), 3);
        assert_eq!((face.overruled() - over, face.peek().remaining()), (12, 0), "and nothing is minted");
        use Reason::{Empty, TooMany};
        let before =
            [Empty, TooMany, TooMany, Empty, Empty, Empty, Empty, TooMany, Empty, Empty, Empty, Empty];
        assert_eq!(seen(&list), before.map(Err), "it is shown what would have been");
    });
}

/// The bucket's tokens are taken as ever. An overruled refusal is counted, and takes no more of
/// them.
#[test]
fn in_the_shadow_the_bucket_is_counted_as_ever() {
    let (set, _list) = watched(true);
    on_each(set, |face, mut time| {
        assert_eq!(face.hold(4).unwrap().settle(1), 0);
        assert_eq!(face.peek().remaining(), 4);
        drop(face.reserve(2).unwrap());
        assert_eq!(face.peek().remaining(), 4);
        assert_eq!((face.up_to(9).tokens(), face.peek().remaining()), (9, 0));
        time.advance(SECOND);
        assert_eq!((face.up_to(3).tokens(), face.peek().remaining(), face.overruled()), (3, 2, 1));
        assert!(face.try_n(6).is_ok());
        assert_eq!((face.peek().remaining(), face.overruled()), (2, 2));
    });
}

#[test]
fn in_the_shadow_there_is_room_for_every_key() {
    let seen_full = Arc::new(Mutex::new(0));
    let count = seen_full.clone();
    let limiter =
        RateLimiter::<u64>::stored(FIVE).clock(Clock::mock().0).when_full(WhenFull::Deny).shadow(true);
    let limiter = limiter.on_decision(move |decision| {
        *count.lock().unwrap() += u64::from(decision.is_err_and(|denied| denied.reason() == Reason::Full));
    });
    let limiter = limiter.with_places(0);
    assert!(limiter.try_acquire(&1).is_ok() && limiter.pin().try_acquire_n(&2, 3).is_ok());
    assert_eq!(limiter.key(&3).n(4).acquire_up_to().tokens(), 4);
    assert!(limiter.key(&4).reserve().is_ok_and(|slot| slot.delay().is_zero()));
    assert_eq!(limiter.key(&5).n(2).hold().unwrap().settle(1), 0);
    assert!(all_of((limiter.key(&6), limiter.key(&7))).try_acquire().is_ok());
    assert_eq!((limiter.stats().overruled, *seen_full.lock().unwrap(), limiter.len()), (7, 7, crowd()));
    // A plan of another limiter is no plan at all.
    let foreign = RateLimiter::<u64>::stored(FIVE).build().plan(FIVE).unwrap();
    assert!(limiter.key(&8).under(&foreign).try_acquire().is_ok());
    assert_eq!(limiter.stats().overruled, 8);
}

/// A look that refuses is a decision. A look that does not is followed by a take, which is one.
#[test]
fn several_limits_are_each_seen_once() {
    let (set, list) = watched(false);
    let hook = set.hook.clone().unwrap();
    let limiter = RateLimiter::<u64>::stored(FIVE).on_decision(move |decision| hook(decision)).build();
    let all = all_of([limiter.key(&1).n(3), limiter.key(&2).n(4)]);
    assert!(all.try_acquire().is_ok());
    assert_eq!(seen(&list), [Ok(3), Ok(4)]);
    assert!(all.try_acquire().is_err());
    assert_eq!(seen(&list), [Err(Reason::Empty), Err(Reason::Empty)]);
}

/// A wait that is over at once is a decision like any other.
#[test]
fn a_wait_of_no_time_is_seen_once() {
    let (set, list) = watched(false);
    let hook = set.hook.clone().unwrap();
    let limiter = RateLimiter::<u64>::stored(FIVE).clock(Clock::mock().0);
    let limiter = limiter.on_decision(move |decision| hook(decision)).build();
    assert!(limiter.key(&1).n(5).blocking_acquire().is_ok());
    assert_eq!(seen(&list), [Ok(5)]);
    assert!(limiter.key(&1).within(Duration::ZERO).blocking_acquire().is_err());
    assert_eq!(seen(&list), [Err(Reason::Empty)]);
    assert!(limiter.shared().n(5).blocking_acquire().is_ok());
    assert_eq!(seen(&list), [Ok(5)]);
}
