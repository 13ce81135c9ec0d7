// promise: law
//! Acts of another thread in the middle of a call, one case at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tollgate::{Clock, Quota, RateLimiter, Reason, TokenBucket, WhenFull};

use super::{InStore, Room, in_table, with_one};
use crate::scene::{HOURLY, Limiter, Scene, finds_nothing, takes};
use crate::support::{HOUR, SECOND, ns};

/// The reading of a new key's first charge. In a map the key has its bucket by then; in a table its
/// place is being claimed.
const FIRST_CHARGE: u32 = 2;

fn a_scene(quota: Quota, places: usize, policy: WhenFull) -> Scene {
    Scene::of(|clock| RateLimiter::stored(quota).clock(clock).when_full(policy).with_places(places))
}

/// A decision reads the clock. Then the clock is set back and another thread charges the bucket.
/// The first reading is not time that passed.
#[test]
fn a_clock_that_is_set_back_within_a_decision_mints_nothing() {
    for changed in [false, true] {
        let now = Arc::new(AtomicU64::new(3 * HOUR));
        let late = Arc::new(Mutex::new(None::<Arc<TokenBucket>>));
        let clock = Clock::from_fn({
            let (now, late) = (Arc::clone(&now), Arc::clone(&late));
            move || {
                let read = now.load(Ordering::Relaxed);
                let taken = late.lock().unwrap().take();
                if let Some(bucket) = taken {
                    now.store(2 * HOUR + HOUR / 2, Ordering::Relaxed);
                    // A caller charges the bucket at the new time.
                    assert!(bucket.try_acquire().is_err());
                }
                ns(read)
            }
        });
        // 4 s at the faster quota are more tokens than half an hour at the quota after the change.
        let first = if changed { Quota::per_second(1_000).burst(1) } else { Quota::per_minute(1) };
        let bucket = Arc::new(TokenBucket::builder(first).clock(clock).build());
        assert!(bucket.try_acquire().is_ok());
        if changed {
            now.fetch_add(HOUR, Ordering::Relaxed);
            bucket.set_rule(Quota::per_minute(1)).unwrap();
            now.fetch_add(HOUR, Ordering::Relaxed);
            assert!(bucket.try_acquire().is_ok());
            now.store(3 * HOUR, Ordering::Relaxed);
            assert!(bucket.try_acquire().is_err());
        }
        assert!(bucket.try_acquire().is_err());
        *late.lock().unwrap() = Some(Arc::clone(&bucket));
        assert!(bucket.try_acquire().is_err(), "changed: {changed}");
    }
}

#[test]
fn of_two_takers_one_gets_the_token() {
    let scene = a_scene(HOURLY.burst(2), 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.at(1, takes);
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn nobody_is_granted_on_a_bucket_that_was_evicted() {
    let evicts = |limiter: &Limiter| assert_eq!(limiter.evict_idle(), 1);
    for taken_anew in [false, true] {
        let scene = a_scene(HOURLY, 9, WhenFull::Deny);
        takes(&scene.limiter);
        scene.set(2 * HOUR);
        scene.at(1, move |limiter| {
            evicts(limiter);
            if taken_anew {
                takes(limiter);
            }
        });
        assert_eq!(scene.limiter.try_acquire(&1).is_ok(), !taken_anew);
        finds_nothing(&scene.limiter);
        assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (1, 1));
        scene.is_over();
    }
}

#[test]
fn two_first_uses_share_a_burst() {
    // At the first charge in a table no other call gets a place: `inline/entering.rs`.
    for reading in if in_table() { 1..FIRST_CHARGE } else { 1..FIRST_CHARGE + 1 } {
        let scene = a_scene(HOURLY.burst(2), 9, WhenFull::Deny);
        scene.at(reading, takes);
        assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(0));
        finds_nothing(&scene.limiter);
        assert_eq!(scene.limiter.len(), 1);
        scene.is_over();
    }
}

#[test]
fn who_is_removed_while_it_is_charged_starts_anew() {
    let removes = |limiter: &Limiter| assert!(limiter.remove(&1) && limiter.is_empty());
    // Another call has put the key there before.
    let scene = a_scene(HOURLY.burst(2), 9, WhenFull::Deny);
    scene.at(1, takes);
    scene.at(2, removes);
    assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(1));
    assert_eq!(scene.limiter.len(), 1);
    scene.is_over();

    // A call that helps to remove the bucket does not remove the next one.
    let scene = a_scene(HOURLY.burst(2), 9, WhenFull::Deny);
    scene.at(1, takes);
    scene.at(2, move |limiter| {
        removes(limiter);
        takes(limiter);
        takes(limiter);
    });
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn a_change_of_quota_whose_clock_stopped_is_made_up_for() {
    let scene = a_scene(HOURLY.burst(3), 9, WhenFull::Deny);
    scene.at(1, |_| panic!("the clock has stopped"));
    let died = catch_unwind(AssertUnwindSafe(|| scene.limiter.set_rule(HOURLY)));
    assert!(died.is_err());
    // The next change makes up for it.
    assert_eq!(scene.limiter.set_rule(HOURLY.burst(2)), Ok(()));
    assert_eq!(scene.limiter.rule(), HOURLY.burst(2));
    takes(&scene.limiter);
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn a_plan_after_a_change_whose_clock_stopped_counts_from_now_on() {
    let scene = a_scene(HOURLY, 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.set(HOUR / 2);
    scene.at(1, |_| panic!("the clock has stopped"));
    assert!(catch_unwind(AssertUnwindSafe(|| scene.limiter.set_rule(HOURLY))).is_err());
    let plan = scene.limiter.plan(Quota::per_minute(1)).unwrap();
    assert!(scene.limiter.key(&1).under(&plan).try_acquire().is_err());
    // A minute, and a tick.
    scene.set(HOUR / 2 + HOUR / 59);
    assert!(scene.limiter.key(&1).under(&plan).try_acquire().is_ok());
    scene.is_over();
}

#[test]
fn a_first_use_that_is_under_way_is_not_evicted() {
    let scene = a_scene(HOURLY, 9, WhenFull::Deny);
    scene.at(FIRST_CHARGE, |limiter| assert_eq!((limiter.evict_idle(), limiter.len()), (0, 1)));
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn the_last_room_may_be_taken_for_the_same_key() {
    let scene = a_scene(HOURLY.burst(2), 1, WhenFull::Deny);
    scene.at(1, takes);
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    assert_eq!(scene.limiter.stats().refused_full, 0);
    scene.is_over();
}

#[test]
fn the_room_of_a_first_use_that_is_under_way_is_taken() {
    let scene = a_scene(HOURLY, 1, WhenFull::Deny);
    scene.at(FIRST_CHARGE, |limiter| {
        let denied = limiter.try_acquire(&2).expect_err("the only place is taken");
        // A table has looked at the other keys of the set.
        let wait = if in_table() { HOUR + 2 * SECOND } else { 0 };
        assert_eq!(denied.reason(), Reason::Full);
        assert!(
            denied.retry_after().is_some_and(|told| (ns(wait)..ns(wait + SECOND)).contains(&told)),
            "{denied:?}"
        );
    });
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (with_one(), 0));
    scene.is_over();
}

/// The key might have had a bucket that came and went within the margin.
#[test]
fn a_charge_outside_that_took_the_margin_is_void() {
    for (span, left) in [(2 * SECOND - 1, 2), (2 * SECOND, 1)] {
        let scene = a_scene(HOURLY.burst(3), 1, WhenFull::Share);
        assert!(scene.limiter.try_acquire(&2).is_ok());
        let now = Arc::clone(&scene.now);
        scene.at(if in_table() { 4 } else { 5 }, move |_| now.store(span, Ordering::Relaxed));
        let granted = scene.limiter.try_acquire(&1).expect("it is there");
        assert_eq!((granted.remaining(), scene.limiter.stats().shared), (left, 1));
        scene.is_over();
    }
}

#[test]
fn of_two_evictors_one_counts() {
    let scene = a_scene(HOURLY, 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.set(2 * HOUR);
    scene.at(1, |limiter| assert_eq!(limiter.evict_idle(), 1));
    assert_eq!(scene.limiter.evict_idle(), 0);
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (0, 1));
    scene.is_over();
}

#[test]
fn who_is_charged_while_it_is_evicted_stays() {
    let scene = a_scene(HOURLY, 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.set(2 * HOUR);
    scene.at(1, takes);
    assert_eq!((scene.limiter.evict_idle(), scene.limiter.len()), (0, 1));
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn what_is_settled_on_a_bucket_that_goes_is_nobodys() {
    let scene = a_scene(HOURLY.burst(9), 9, WhenFull::Deny);
    let hold = scene.limiter.key(&1).hold().expect("it starts full");
    scene.at(1, |limiter| assert!(limiter.remove(&1)));
    assert_eq!(hold.settle(5), 4, "none of the four was charged");
    scene.is_over();
    assert_eq!(scene.limiter.peek(&1).remaining(), 9);
}

/// Another caller takes a token at each reading. A loop would lose a race at each of them.
#[test]
fn a_take_that_lost_a_race_reads_the_clock_once_more() {
    let scene = a_scene(Quota::per_hour(100), with_one(), WhenFull::Deny);
    takes(&scene.limiter);
    let played = Arc::new(AtomicU64::new(0));
    for reading in 1..=10 {
        let played = Arc::clone(&played);
        scene.at(reading, move |limiter| {
            played.fetch_add(1, Ordering::Relaxed);
            takes(limiter);
        });
    }
    takes(&scene.limiter);
    assert_eq!(played.load(Ordering::Relaxed), 2);
}
