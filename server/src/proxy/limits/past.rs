//! The buckets or windows that a reload has replaced, until their keys have come back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate::AnyRule;

use super::keys::Key;
use super::limiter::Limiter;

/// The replaced buckets of a limit.
///
/// A key that comes back is removed from them, and its new bucket takes over the tokens that it has
/// used. Once every old bucket would be full again, they are forgotten. The default is that of a
/// limit which has replaced none.
#[derive(Default)]
pub(crate) struct Past {
    is_over: AtomicBool,
    replaced: Mutex<Option<Replaced>>,
}

struct Replaced {
    limiter: Limiter,
    /// `None` is beyond the range of the clock.
    until: Option<Instant>,
    /// The buckets that these have replaced.
    past: Arc<Past>,
}

impl Replaced {
    fn of(limiter: Limiter, past: Arc<Past>) -> Replaced {
        Replaced { until: Instant::now().checked_add(longest_use(limiter.rule())), limiter, past }
    }
}

impl Past {
    /// Returns the past of a limit that replaces this one.
    pub(crate) fn of(limiter: Limiter, past: Arc<Past>) -> Arc<Past> {
        let replaced = Mutex::new(Some(Replaced::of(limiter, past)));
        Arc::new(Past { is_over: AtomicBool::default(), replaced })
    }

    /// Puts a limiter before those that are replaced already.
    pub(super) fn put(&self, limiter: Limiter) {
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        let past = Past { is_over: AtomicBool::default(), replaced: Mutex::new(replaced.take()) };
        *replaced = Some(Replaced::of(limiter, Arc::new(past)));
        self.is_over.store(false, Relaxed);
    }

    /// Returns the limiters that are replaced, the oldest first.
    pub(super) fn limiters(&self) -> Vec<Limiter> {
        let (limiter, past) = match &*self.replaced.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(replaced) => (replaced.limiter.clone(), replaced.past.clone()),
            None => return Vec::new(),
        };
        let mut limiters = past.limiters();
        limiters.push(limiter);
        limiters
    }

    /// Waits until a key that was removed from the replaced buckets has its new one.
    pub(super) fn wait_for_carry(&self) {
        drop(self.replaced.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Charges a key of `to` with the tokens that it used here. A second call finds nothing.
    pub(crate) fn carry(&self, key: &Key, to: &Limiter) {
        // Relaxed: the flag is a hint, and the lock has the truth.
        if self.is_over.load(Relaxed) {
            return;
        }
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |old: &Replaced| old.until.is_some_and(|until| until <= Instant::now());
        match &*replaced {
            Some(old) if !is_over(old) => {
                old.past.carry(key, &old.limiter);
                if let Some(left) = old.limiter.forget(key) {
                    to.take_over(key, left, old.limiter.rule().capacity());
                }
            }
            _ => {
                *replaced = None;
                self.is_over.store(true, Relaxed);
            }
        }
    }
}

/// Returns the time after which no bucket of the rule has less than all its tokens: the time to
/// fill one, or two periods of a window.
fn longest_use(rule: AnyRule) -> Duration {
    let fills = (rule.capacity() as f64 / rule.tokens() as f64).max(2.0);
    Duration::try_from_secs_f64(rule.period().as_secs_f64() * fills).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::limits::hasher::KeyHasher;
    use crate::proxy::limits::limiter::KeyPlace;

    fn limiter(rule: &str) -> Limiter {
        let keys = KeyPlace { most: Some(100), hasher: KeyHasher::new() };
        Limiter::new("a", rule.parse().expect("a rule"), keys, None).expect("no store is asked")
    }

    fn key(last: u8) -> Key {
        Key::Address([192, 0, 2, last].into())
    }

    /// Returns the tokens that are left to a key that has used some before the change.
    fn left(before: &str, used: u64, after: &str) -> u64 {
        let (old, new) = (limiter(before), limiter(after));
        old.take(&key(1), used);
        let past = Past::of(old, Arc::default());
        past.carry(&key(1), &new);
        let left = new.left(&key(1));
        past.carry(&key(1), &new);
        past.carry(&key(2), &new);
        assert_eq!(new.left(&key(1)), left, "it is charged once");
        assert_eq!(new.left(&key(2)), new.rule().capacity(), "another key has used none");
        left
    }

    #[test]
    fn a_bucket_keeps_the_tokens_left_and_a_window_those_used() {
        for (before, used, after, wanted) in [
            ("1/h burst 40", 37, "1/h burst 1000000", 3),
            ("1/h burst 40", 40, "1/h burst 1000000", 0),
            ("1/h burst 1000000", 999_990, "1/h burst 5", 5),
            ("100/d fixed", 98, "1/h burst 40", 2),
            ("1/h burst 40", 37, "100/d fixed", 63),
            ("100/d fixed", 98, "1000/d sliding", 902),
            ("100/d fixed", 98, "10/d sliding", 0),
            // A key that has used nothing is not limited by an old burst.
            ("1/h burst 40", 0, "1/h burst 1000000", 1_000_000),
        ] {
            assert_eq!(left(before, used, after), wanted, "{used} of {before}, then {after}");
        }
    }

    #[test]
    fn a_second_change_takes_over_what_the_first_has_not() {
        let [first, second, third] = ["100/d fixed", "10/h fixed", "50/d sliding"].map(limiter);
        first.take(&key(1), 4);
        let past = Past::of(second, Past::of(first, Arc::default()));
        past.carry(&key(1), &third);
        assert_eq!(third.left(&key(1)), 46);
    }

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        for (rule, seconds) in [("10/s burst 100", 10), ("10/s burst 5", 2), ("100/m fixed", 120)] {
            assert_eq!(longest_use(rule.parse().expect("a rule")), Duration::from_secs(seconds), "{rule}");
        }
        let old = limiter("10/s burst 5");
        old.take(&key(1), 5);
        let past = Past::of(old, Arc::default());
        past.replaced.lock().expect("no panic").as_mut().expect("it has one").until = Some(Instant::now());
        let new = limiter("1/h burst 5");
        past.carry(&key(1), &new);
        assert_eq!(new.left(&key(1)), 5);
        assert!(past.replaced.lock().expect("no panic").is_none() && past.is_over.load(Relaxed));
    }
}
