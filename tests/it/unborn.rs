// promise: one-bucket
//! Half-way entries of a map: inserted and not yet charged, or sealed and not yet removed. (A place
//! of a table is neither.)

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate::{Clock, Quota, RateLimiter, WhenFull};

use crate::scene::{HOURLY, Limiter, Scene, finds_nothing, takes};
use crate::support::HOUR;

fn a_scene(quota: Quota, max_keys: usize, policy: WhenFull) -> Scene {
    Scene::of(|clock| RateLimiter::builder(quota).clock(clock).max_keys(max_keys).when_full(policy).build())
}

/// Returns a scene whose key 1 has a bucket that was never charged: its inserting call panicked.
fn with_a_first_use_that_never_came_to_be(max_keys: usize) -> Scene {
    let scene = a_scene(HOURLY, max_keys, WhenFull::Deny);
    scene.at(2, |_| panic!("the clock has stopped"));
    let died = catch_unwind(AssertUnwindSafe(|| scene.limiter.try_acquire(&1)));
    assert!(died.is_err() && scene.limiter.len() == 1);
    scene
}

/// The uncharged bucket makes room, whatever happened to the quota.
#[test]
fn a_first_use_that_never_came_to_be_makes_room() {
    let scene = with_a_first_use_that_never_came_to_be(1);
    scene.set(HOUR);
    scene.limiter.set_rule(HOURLY).expect("it is the same");
    assert!(scene.limiter.try_acquire(&2).is_ok());
    assert_eq!((scene.limiter.len(), scene.limiter.stats().evicted), (1, 1));
}

#[test]
fn a_first_use_that_never_came_to_be_is_made_up_for() {
    for removed in [false, true] {
        let scene = with_a_first_use_that_never_came_to_be(9);
        assert_eq!(scene.limiter.peek(&1).remaining(), 1);
        if removed {
            // The second reading is the one before the first charge.
            scene.at(2, |limiter| assert!(limiter.remove(&1)));
        }
        takes(&scene.limiter);
        finds_nothing(&scene.limiter);
        assert_eq!(scene.limiter.len(), 1);
        scene.is_over();
    }
}

/// A key without room has five readings: for its entry, for the bucket that has the place, and
/// three at the overflow bucket. Those are before its charge, for it, and after it.
#[test]
fn who_gets_a_place_while_it_is_charged_outside_is_granted_once() {
    let gets_a_place = |limiter: &Limiter| {
        assert!(limiter.remove(&2));
        takes(limiter);
    };
    for reading in [3, 4] {
        let scene = a_scene(HOURLY, 1, WhenFull::Share);
        assert!(scene.limiter.try_acquire(&2).is_ok());
        scene.at(reading, gets_a_place);
        finds_nothing(&scene.limiter);
        assert_eq!(scene.limiter.stats().shared, 0);
        scene.is_over();
    }
}

#[test]
fn who_is_removed_at_its_first_charge_starts_anew() {
    let removes = |limiter: &Limiter| assert!(limiter.remove(&1) && limiter.is_empty());
    // The readings of the first charge and of the next: a lost commit has a reading of its own.
    let scene = a_scene(HOURLY.burst(2), 9, WhenFull::Deny);
    scene.at(2, removes);
    scene.at(5, removes);
    assert_eq!(scene.limiter.try_acquire(&1).map(|granted| granted.remaining()), Ok(1));
    scene.is_over();
}

thread_local! {
    /// Comparisons until a key panics.
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

/// Returns a limiter of one place. A call sealed the bucket of key 1 in it and panicked before its
/// removal.
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
    let taken = limiter.try_acquire(&one()).map(|granted| granted.remaining());
    assert_eq!(taken, Ok(1), "a taker removes it");

    let limiter = with_a_seal_left_behind();
    assert_eq!(limiter.peek(&one()).remaining(), 2);
    limiter.refund(&one(), 1);
    assert_eq!(limiter.try_acquire(&one()).map(|granted| granted.remaining()), Ok(1), "it has a new one");

    let limiter = with_a_seal_left_behind();
    assert!(!limiter.remove(&one()) && limiter.is_empty());

    // The call that sealed the bucket has counted it, if it is to be counted.
    let limiter = with_a_seal_left_behind();
    assert_eq!((limiter.evict_idle(), limiter.len(), limiter.stats().evicted), (0, 0, 0));

    let limiter = with_a_seal_left_behind();
    assert!(limiter.try_acquire(&Frail(2)).is_ok(), "there is room");
    assert_eq!((limiter.len(), limiter.stats().evicted), (1, 0));
}
