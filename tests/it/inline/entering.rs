// promise: one-bucket
//! A key that is getting a place: the calls that others may make meanwhile, and the outcome if it
//! fails.
//!
//! Its call reads the clock twice: as it looks for a place, and when it has one. At the second
//! reading its word is sealed and it holds the latch of its home set. No other call can then make
//! an entry for the key.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate::{Quota, RateLimiter, Reason, WhenFull};

use super::{PLACES, table};
use crate::scene::{HOURLY, Scene, finds_nothing, takes};
use crate::support::{HOUR, SECOND, ns};

const HAS_A_PLACE: u32 = 2;

fn a_scene(quota: Quota, policy: WhenFull) -> Scene {
    Scene::of(|clock| {
        RateLimiter::builder(quota).clock(clock).max_keys(1).inline().unwrap().when_full(policy).build()
    })
}

/// Fills all but `left` places with keys from 100 on.
fn crowd(scene: &Scene, left: u64) {
    let n = scene.limiter.rule().capacity();
    (left..PLACES).for_each(|key| assert!(scene.limiter.try_acquire_n(&(100 + key), n).is_ok()));
}

/// Checks that new keys can have all places.
fn all_places_can_be_had(scene: &Scene) {
    scene.set(100 * HOUR);
    let limiter = &scene.limiter;
    assert!((1_000..1_000 + PLACES).all(|key| limiter.try_acquire(&key).is_ok()));
    assert!(limiter.try_acquire(&2_000).is_err() && limiter.len() == 8);
}

/// Wherever the clock panics, the place is empty, later calls are not blocked, and the counts add
/// up.
#[test]
fn who_dies_while_it_gets_a_place_leaves_it_empty() {
    for reading in 1..=HAS_A_PLACE {
        for evicts in [false, true] {
            let scene = a_scene(HOURLY, WhenFull::Deny);
            crowd(&scene, if evicts { 0 } else { 4 });
            if evicts {
                scene.set(2 * HOUR);
            }
            let before = scene.limiter.len() as u64;
            scene.at(reading, |_| panic!("the clock has stopped"));
            let died = catch_unwind(AssertUnwindSafe(|| scene.limiter.try_acquire(&1)));
            assert!(died.is_err());
            let stats = scene.limiter.stats();
            // The key that made room is gone, and counted.
            assert_eq!(stats.keys as u64 + stats.evicted, before, "at {reading}, {evicts}: {stats:?}");
            assert_eq!(stats.evicted, u64::from(evicts && reading == HAS_A_PLACE));
            assert_eq!(scene.limiter.peek(&1).remaining(), 1);
            takes(&scene.limiter);
            finds_nothing(&scene.limiter);
            scene.is_over();
            all_places_can_be_had(&scene);
        }
    }
}

/// Another call gets a place for the key meanwhile. The first call evicts no further key.
#[test]
fn no_place_is_made_for_a_key_that_has_one() {
    let scene = a_scene(HOURLY.burst(2), WhenFull::Deny);
    crowd(&scene, 0);
    scene.set(3 * HOUR);
    scene.at(1, takes);
    assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(0));
    finds_nothing(&scene.limiter);
    let stats = scene.limiter.stats();
    assert_eq!((stats.keys, stats.evicted), (8, 1));
    scene.is_over();
    all_places_can_be_had(&scene);
}

/// While a key gets a place no other key of the set gets one. Known keys are decided as ever, and a
/// newcomer finds room when it comes back.
#[test]
fn while_a_key_gets_a_place_no_other_does_and_known_keys_go_on() {
    let scene = a_scene(HOURLY.burst(3), WhenFull::Deny);
    assert!(scene.limiter.try_acquire(&7).is_ok());
    scene.at(HAS_A_PLACE, |limiter| {
        for newcomer in [1, 2] {
            let denied = limiter.try_acquire(&newcomer).expect_err("somebody has the latch");
            assert_eq!((denied.reason(), denied.retry_after()), (Reason::Full, Some(ns(0))));
        }
        assert_eq!(limiter.try_acquire(&7).map(|granted| granted.remaining()), Ok(1));
        assert_eq!((limiter.peek(&1).remaining(), limiter.evict_idle()), (3, 0));
        assert!(!limiter.remove(&1), "it has no bucket yet");
        limiter.refund(&1, 3);
        limiter.clear();
        assert_eq!(limiter.len(), 1);
    });
    assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(2));
    assert_eq!((scene.limiter.len(), scene.limiter.stats().refused_full), (1, 2));
    assert!(scene.limiter.try_acquire(&2).is_ok());
    scene.is_over();
}

/// A key that is charged outside gets a place in that moment. The charge is void, and made on the
/// key's own bucket.
#[test]
fn who_gets_a_place_while_it_is_charged_outside_is_granted_once() {
    // The readings at the lookup of its entry, and at the charge of its overflow bucket.
    for reading in [2, 3] {
        let scene = a_scene(HOURLY, WhenFull::Share);
        crowd(&scene, 0);
        scene.set(HOUR + 2 * SECOND - 1);
        let now = scene.now.clone();
        scene.at(reading, move |limiter| {
            now.fetch_add(SECOND, std::sync::atomic::Ordering::Relaxed);
            takes(limiter);
        });
        finds_nothing(&scene.limiter);
        let stats = scene.limiter.stats();
        assert_eq!((stats.shared, stats.evicted, stats.keys), (0, 1, 8), "reading {reading}");
        scene.is_over();
    }
}

/// A call that loses its chosen place to another key takes another place.
#[test]
fn of_two_newcomers_each_gets_a_place() {
    let scene = a_scene(HOURLY, WhenFull::Deny);
    crowd(&scene, 2);
    scene.at(1, |limiter| assert!(limiter.try_acquire(&2).is_ok()));
    takes(&scene.limiter);
    assert!(scene.limiter.try_acquire(&2).is_err());
    finds_nothing(&scene.limiter);
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (8, 0));
    scene.is_over();
}

#[derive(Clone, PartialEq, Eq)]
struct Frail(u64);

impl Hash for Frail {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert_ne!(self.0, 13, "unlucky");
        self.0.hash(state);
    }
}

/// Of a key's code only `Hash` is called, before any change.
#[test]
fn a_key_that_cannot_be_hashed_changes_nothing() {
    let limiter = RateLimiter::<Frail>::builder(HOURLY).max_keys(100).inline().unwrap().build();
    assert!(limiter.try_acquire(&Frail(1)).is_ok());
    let calls: [fn(&RateLimiter<Frail>); 6] = [
        |limiter| assert!(limiter.try_acquire(&Frail(13)).is_ok()),
        |limiter| assert!(limiter.pin().try_acquire(&Frail(13)).is_ok()),
        |limiter| drop(limiter.key(&Frail(13)).reserve()),
        |limiter| assert!(limiter.remove(&Frail(13))),
        |limiter| assert_eq!(limiter.peek(&Frail(13)).remaining(), 1),
        |limiter| {
            assert!(limiter.try_acquire_batch(&[(&Frail(2), 1), (&Frail(13), 1)]).all(|one| one.is_ok()))
        },
    ];
    for call in calls {
        assert!(catch_unwind(AssertUnwindSafe(|| call(&limiter))).is_err());
        assert_eq!(limiter.len(), 1);
    }
    assert!(limiter.try_acquire(&Frail(1)).is_err() && limiter.try_acquire(&Frail(2)).is_ok());
}

/// A plan is chosen before any change, too, so a panic there changes nothing.
#[test]
fn a_plan_that_cannot_be_chosen_changes_nothing() {
    let limiter = RateLimiter::<u64>::builder(HOURLY).max_keys(1).inline().unwrap().plans([HOURLY]).unwrap();
    let limiter = limiter.plan_for(|key| (*key != 13).then_some(0).or_else(|| panic!("unlucky"))).build();
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.try_acquire(&13))).is_err());
    assert!(limiter.is_empty() && (0..PLACES).all(|key| limiter.try_acquire(&key).is_ok()));
    let (other, _time) = table(HOURLY, 1, WhenFull::Deny);
    assert!(other.is_empty());
}
