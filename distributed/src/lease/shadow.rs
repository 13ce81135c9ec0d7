//! An upper bound of the tokens in the store.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::terms::Terms;

/// The level of a shared bucket at the last answer.
///
/// Other processes only take from the bucket. So until the next answer it has at most this level
/// and the tokens earned since, and a request for more is refused without a call. Tokens that are
/// given back, or a larger quota, make the level wrong: so it holds for a second only.
pub(crate) struct Shadow {
    /// The time at which the level was or will be 0, in nanoseconds since the origin.
    empty: AtomicI64,
    /// The time at which the call of the answer was sent, in nanoseconds since the origin.
    told: AtomicU64,
}

/// The time for which a level holds, in nanoseconds.
const LIFE: u64 = 1_000_000_000;

impl Shadow {
    pub(crate) fn new() -> Shadow {
        Shadow { empty: AtomicI64::new(i64::MIN), told: AtomicU64::new(0) }
    }

    /// Notes the level of an answer to a call that was sent at `sent`.
    pub(crate) fn tell(&self, terms: &Terms, credits: i64, sent: u64) {
        let spec = &terms.spec;
        // Rounded down, so that the level is never too low.
        let age = credits as f64 / (spec.per_tick() as f64) * (spec.tick_us() as f64 * 1_000.0);
        let empty = (sent as f64 - age).floor();
        let empty = if sent < 1 << 53 { empty } else { empty - 1_024.0 };
        self.empty.store(empty as i64, Ordering::Relaxed);
        self.told.store(sent, Ordering::Relaxed);
    }

    fn is_told(&self, now: u64) -> bool {
        self.empty.load(Ordering::Relaxed) != i64::MIN
            && now.saturating_sub(self.told.load(Ordering::Relaxed)) < LIFE
    }

    /// Returns the wait until the store may grant `n` tokens; `None` if it may do so now.
    pub(crate) fn wait(&self, terms: &Terms, n: u64, now: u64) -> Option<Duration> {
        if !self.is_told(now) {
            return None;
        }
        let missing = n.saturating_sub(terms.spec.debt());
        let in_debt = terms.spec.debt().saturating_sub(n);
        let due = i128::from(self.empty.load(Ordering::Relaxed)) + i128::from(terms.time_of(missing))
            - i128::from(terms.time_of(in_debt));
        let wait = due - i128::from(now);
        (wait > 0).then(|| Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Returns the level of the last answer with the tokens earned since: the most tokens in the
    /// store. `None` if it never answered.
    pub(crate) fn level(&self, terms: &Terms, now: u64) -> Option<u64> {
        let empty = self.empty.load(Ordering::Relaxed);
        let time = u64::try_from(i128::from(now) - i128::from(empty)).unwrap_or(if empty > 0 {
            0
        } else {
            u64::MAX
        });
        (empty != i64::MIN).then(|| terms.tokens_in(time).min(terms.quota().capacity()))
    }
}
