//! What another thread does in the middle of a call, one case at a time: by a clock that does it as it is read.
//!
//! The clock is read after the word was loaded and before it is committed, so what is done then comes in between.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tollgate::{Clock, Quota, RateLimiter, Reason, TokenBucket, WhenFull};

use crate::support::{HOUR, SECOND, ns};

type Limiter = RateLimiter<u64>;
type Act = Box<dyn FnOnce(&Limiter) + Send>;

/// A limiter, and what others do at which reading of a call to it.
struct Scene {
    limiter: Limiter,
    now: Arc<AtomicU64>,
    acts: Arc<Mutex<Vec<(u32, Act)>>>,
}

impl Scene {
    fn new(quota: Quota, max_keys: usize, policy: WhenFull) -> Scene {
        let now = Arc::new(AtomicU64::new(0));
        let acts = Arc::new(Mutex::new(Vec::<(u32, Act)>::new()));
        let cast = Arc::new(OnceLock::<Limiter>::new());
        let clock = Clock::from_fn({
            let (now, acts, cast) = (Arc::clone(&now), Arc::clone(&acts), Arc::clone(&cast));
            let acting = AtomicBool::new(false);
            move || {
                if let Some(limiter) = cast.get()
                    && !acting.swap(true, Ordering::Relaxed)
                {
                    let due = next(&mut acts.lock().unwrap());
                    let played = catch_unwind(AssertUnwindSafe(|| due.map(|act| act(limiter))));
                    acting.store(false, Ordering::Relaxed);
                    played.unwrap_or_else(|panic| resume_unwind(panic));
                }
                ns(now.load(Ordering::Relaxed))
            }
        });
        let limiter = Limiter::builder(quota).clock(clock).max_keys(max_keys).when_full(policy).build();
        assert!(cast.set(limiter.clone()).is_ok());
        Scene { limiter, now, acts }
    }

    fn set(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// At so many readings from here on, not counting those of the acts.
    fn at(&self, reading: u32, act: impl FnOnce(&Limiter) + Send + 'static) {
        self.acts.lock().unwrap().push((reading, Box::new(act)));
    }

    /// All acts were played.
    fn is_over(&self) {
        assert!(self.acts.lock().unwrap().is_empty());
    }
}

/// One reading more; the act that is due at it.
fn next(acts: &mut Vec<(u32, Act)>) -> Option<Act> {
    acts.iter_mut().for_each(|(readings, _)| *readings -= 1);
    let due = acts.iter().position(|(readings, _)| *readings == 0)?;
    Some(acts.remove(due).1)
}

const HOURLY: Quota = Quota::per_hour(1);

fn takes(limiter: &Limiter) {
    assert!(limiter.try_acquire(&1).is_ok());
}

fn finds_nothing(limiter: &Limiter) {
    assert_eq!(limiter.try_acquire(&1).map_err(|denied| denied.reason()), Err(Reason::Empty));
}

/// A decision that reads the clock first, and finds a bucket that was charged meanwhile by a clock that was set back: what it
/// has read is no time that passed.
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
                    // The bucket goes with the clock.
                    assert!(bucket.try_acquire().is_err());
                }
                ns(read)
            }
        });
        // By a faster quota, 4 s are more tokens than the half hour is by that of after the change.
        let first = if changed { Quota::per_second(1_000).burst(1) } else { Quota::per_minute(1) };
        let bucket = Arc::new(TokenBucket::with_clock(first, clock));
        assert!(bucket.try_acquire().is_ok());
        if changed {
            now.fetch_add(HOUR, Ordering::Relaxed);
            bucket.set_quota(Quota::per_minute(1)).unwrap();
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
    let scene = Scene::new(HOURLY.burst(2), 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.at(1, takes);
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn nobody_is_granted_on_a_bucket_that_was_evicted() {
    let evicts = |limiter: &Limiter| assert_eq!(limiter.evict_idle(), 1);
    for taken_anew in [false, true] {
        let scene = Scene::new(HOURLY, 9, WhenFull::Deny);
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
    // The second reading is that of the first charge, on a bucket that is in the map.
    for reading in [1, 2] {
        let scene = Scene::new(HOURLY.burst(2), 9, WhenFull::Deny);
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
    // At its first charge, and at the next: a commit that was lost has a reading of its own.
    let scene = Scene::new(HOURLY.burst(2), 9, WhenFull::Deny);
    scene.at(2, removes);
    scene.at(5, removes);
    assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(1));
    scene.is_over();

    // After somebody else had put it there.
    let scene = Scene::new(HOURLY.burst(2), 9, WhenFull::Deny);
    scene.at(1, takes);
    scene.at(2, removes);
    assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(1));
    assert_eq!(scene.limiter.len(), 1);
    scene.is_over();

    // Who helps to remove it does not remove the next.
    let scene = Scene::new(HOURLY.burst(2), 9, WhenFull::Deny);
    scene.at(1, takes);
    scene.at(2, move |limiter| {
        removes(limiter);
        takes(limiter);
        takes(limiter);
    });
    finds_nothing(&scene.limiter);
    scene.is_over();
}

/// A bucket that was put there by somebody who died before its first charge.
fn with_a_first_use_that_never_came_to_be(max_keys: usize) -> Scene {
    let scene = Scene::new(HOURLY, max_keys, WhenFull::Deny);
    scene.at(2, |_| panic!("the clock has stopped"));
    let died = catch_unwind(AssertUnwindSafe(|| scene.limiter.try_acquire(&1)));
    assert!(died.is_err() && scene.limiter.len() == 1);
    scene
}

/// Nobody needs it, whatever happened to the quota.
#[test]
fn a_first_use_that_never_came_to_be_makes_room() {
    let scene = with_a_first_use_that_never_came_to_be(1);
    scene.set(HOUR);
    scene.limiter.set_quota(HOURLY).expect("it is the same");
    assert!(scene.limiter.try_acquire(&2).is_ok());
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (1, 1));
}

#[test]
fn a_first_use_that_never_came_to_be_is_made_up_for() {
    for removed in [false, true] {
        let scene = with_a_first_use_that_never_came_to_be(9);
        assert_eq!(scene.limiter.peek(&1).remaining(), 1);
        if removed {
            // The second reading is that of the first charge.
            scene.at(2, |limiter| assert!(limiter.remove(&1)));
        }
        takes(&scene.limiter);
        finds_nothing(&scene.limiter);
        assert_eq!(scene.limiter.len(), 1);
        scene.is_over();
    }
}

#[test]
fn a_change_of_quota_whose_clock_stopped_is_made_up_for() {
    let scene = Scene::new(HOURLY.burst(3), 9, WhenFull::Deny);
    scene.at(1, |_| panic!("the clock has stopped"));
    let died = catch_unwind(AssertUnwindSafe(|| scene.limiter.set_quota(HOURLY)));
    assert!(died.is_err());
    // By the next change.
    assert_eq!(scene.limiter.set_quota(HOURLY.burst(2)), Ok(()));
    assert_eq!(scene.limiter.quota(), HOURLY.burst(2));
    takes(&scene.limiter);
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn a_plan_after_a_change_whose_clock_stopped_counts_from_now_on() {
    let scene = Scene::new(HOURLY, 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.set(HOUR / 2);
    scene.at(1, |_| panic!("the clock has stopped"));
    assert!(catch_unwind(AssertUnwindSafe(|| scene.limiter.set_quota(HOURLY))).is_err());
    let plan = scene.limiter.plan(Quota::per_minute(1)).unwrap();
    assert!(scene.limiter.try_acquire_as(&1, 1, &plan).is_err());
    // A minute, and a tick.
    scene.set(HOUR / 2 + HOUR / 59);
    assert!(scene.limiter.try_acquire_as(&1, 1, &plan).is_ok());
    scene.is_over();
}

#[test]
fn a_first_use_that_is_under_way_is_not_evicted() {
    let scene = Scene::new(HOURLY, 9, WhenFull::Deny);
    scene.at(2, |limiter| assert_eq!((limiter.evict_idle(), limiter.len()), (0, 1)));
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn the_last_room_may_be_taken_for_the_same_key() {
    let scene = Scene::new(HOURLY.burst(2), 1, WhenFull::Deny);
    scene.at(1, takes);
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    assert_eq!(scene.limiter.stats().refused_full, 0);
    scene.is_over();
}

#[test]
fn the_room_of_a_first_use_that_is_under_way_is_taken() {
    let scene = Scene::new(HOURLY, 1, WhenFull::Deny);
    scene.at(2, |limiter| {
        let denied = limiter.try_acquire(&2).expect_err("the only place is taken");
        assert_eq!((denied.reason(), denied.retry_after()), (Reason::Full, Some(ns(0))));
    });
    takes(&scene.limiter);
    finds_nothing(&scene.limiter);
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (1, 0));
    scene.is_over();
}

/// The readings of a key without room: for its entry, of the bucket that has the place, before the overflow bucket is
/// charged, for the charge, and after it.
#[test]
fn who_gets_a_place_while_it_is_charged_outside_is_granted_once() {
    let gets_a_place = |limiter: &Limiter| {
        assert!(limiter.remove(&2));
        takes(limiter);
    };
    for reading in [3, 4] {
        let scene = Scene::new(HOURLY, 1, WhenFull::Share);
        assert!(scene.limiter.try_acquire(&2).is_ok());
        scene.at(reading, gets_a_place);
        finds_nothing(&scene.limiter);
        assert_eq!(scene.limiter.stats().shared, 0);
        scene.is_over();
    }
}

/// It might have had a bucket that came and went.
#[test]
fn a_charge_outside_that_took_the_margin_is_void() {
    for (span, left) in [(2 * SECOND - 1, 2), (2 * SECOND, 1)] {
        let scene = Scene::new(HOURLY.burst(3), 1, WhenFull::Share);
        assert!(scene.limiter.try_acquire(&2).is_ok());
        let now = Arc::clone(&scene.now);
        scene.at(5, move |_| now.store(span, Ordering::Relaxed));
        let granted = scene.limiter.try_acquire(&1).expect("it is there");
        assert_eq!((granted.remaining(), scene.limiter.stats().shared), (left, 1));
        scene.is_over();
    }
}

#[test]
fn of_two_evictors_one_counts() {
    let scene = Scene::new(HOURLY, 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.set(2 * HOUR);
    scene.at(1, |limiter| assert_eq!(limiter.evict_idle(), 1));
    assert_eq!(scene.limiter.evict_idle(), 0);
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (0, 1));
    scene.is_over();
}

#[test]
fn who_is_charged_while_it_is_evicted_stays() {
    let scene = Scene::new(HOURLY, 9, WhenFull::Deny);
    takes(&scene.limiter);
    scene.set(2 * HOUR);
    scene.at(1, takes);
    assert_eq!((scene.limiter.evict_idle(), scene.limiter.len()), (0, 1));
    finds_nothing(&scene.limiter);
    scene.is_over();
}

#[test]
fn what_is_settled_on_a_bucket_that_goes_is_nobodys() {
    let scene = Scene::new(HOURLY.burst(9), 9, WhenFull::Deny);
    let hold = scene.limiter.hold(&1, 1).expect("it starts full");
    scene.at(1, |limiter| assert!(limiter.remove(&1)));
    assert_eq!(hold.settle(5), 4, "none of the four was charged");
    scene.is_over();
    assert_eq!(scene.limiter.peek(&1).remaining(), 9);
}

thread_local! {
    /// After so many comparisons a key panics.
    static COMPARISONS: RefCell<Option<u32>> = const { RefCell::new(None) };
}

#[derive(Clone, Debug)]
struct Frail(u64);

impl Hash for Frail {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Frail {
    fn eq(&self, other: &Frail) -> bool {
        COMPARISONS.with_borrow_mut(|left| {
            if let Some(left) = left {
                *left = left.checked_sub(1).expect("a comparison too many");
            }
        });
        self.0 == other.0
    }
}

impl Eq for Frail {}

/// A limiter of one place, in which somebody has sealed the bucket of key 1, and died before it was removed.
fn with_a_seal_left_behind() -> RateLimiter<Frail> {
    let (clock, _) = Clock::mock();
    let limiter = RateLimiter::<Frail>::builder(HOURLY.burst(2)).clock(clock).max_keys(1);
    let limiter = limiter.when_full(WhenFull::Deny).build();
    assert!(limiter.try_acquire(&Frail(1)).is_ok());
    COMPARISONS.set(Some(1));
    let died = catch_unwind(AssertUnwindSafe(|| limiter.remove(&Frail(1))));
    COMPARISONS.set(None);
    assert!(died.is_err() && limiter.len() == 1);
    limiter
}

#[test]
fn a_seal_that_was_left_behind_is_in_nobodys_way() {
    let one = || Frail(1);
    let limiter = with_a_seal_left_behind();
    assert_eq!(limiter.peek(&one()).remaining(), 2);
    limiter.refund(&one(), 1);
    assert_eq!(limiter.try_acquire(&one()).map(|granted| granted.remaining()), Ok(1), "it has a new one");

    let limiter = with_a_seal_left_behind();
    assert!(!limiter.remove(&one()) && limiter.is_empty());

    // Whoever sealed it has counted it, if it is to be counted.
    let limiter = with_a_seal_left_behind();
    assert_eq!((limiter.evict_idle(), limiter.len(), limiter.stats().evicted), (0, 0, 0));

    let limiter = with_a_seal_left_behind();
    assert!(limiter.try_acquire(&Frail(2)).is_ok(), "there is room");
    assert_eq!((limiter.len(), limiter.stats().evicted), (1, 0));
}
