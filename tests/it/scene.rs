//! Acts of another thread in the middle of a call, by a clock that runs them as it is read.
//!
//! The clock is read after the word was loaded and before it is committed, so an act comes in
//! between.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tollgate::{Clock, Quota, RateLimiter, Reason};

use crate::support::ns;

pub(crate) type Limiter = RateLimiter<u64>;
type Act = Box<dyn FnOnce(&Limiter) + Send>;

/// A limiter, and the acts of others at each reading of a call to it.
pub(crate) struct Scene {
    pub(crate) limiter: Limiter,
    pub(crate) now: Arc<AtomicU64>,
    acts: Arc<Mutex<Vec<(u32, Act)>>>,
}

impl Scene {
    /// Returns a scene with the limiter that `build` makes on its clock.
    pub(crate) fn of(build: impl FnOnce(Clock) -> Limiter) -> Scene {
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
        let limiter = build(clock);
        assert!(cast.set(limiter.clone()).is_ok());
        Scene { limiter, now, acts }
    }

    pub(crate) fn set(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Plays the act at the given reading from here on, not counting the readings of acts.
    pub(crate) fn at(&self, reading: u32, act: impl FnOnce(&Limiter) + Send + 'static) {
        self.acts.lock().unwrap().push((reading, Box::new(act)));
    }

    /// Checks that all acts were played.
    pub(crate) fn is_over(&self) {
        assert!(self.acts.lock().unwrap().is_empty());
    }
}

/// Counts a reading, and returns the act that is due at it.
fn next(acts: &mut Vec<(u32, Act)>) -> Option<Act> {
    acts.iter_mut().for_each(|(readings, _)| *readings -= 1);
    let due = acts.iter().position(|(readings, _)| *readings == 0)?;
    Some(acts.remove(due).1)
}

pub(crate) const HOURLY: Quota = Quota::per_hour(1);

pub(crate) fn takes(limiter: &Limiter) {
    assert!(limiter.try_acquire(&1).is_ok());
}

pub(crate) fn finds_nothing(limiter: &Limiter) {
    assert_eq!(limiter.try_acquire(&1).map_err(|denied| denied.reason()), Err(Reason::Empty));
}
