//! An upper bound of the tokens in the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::terms::Terms;
use crate::law::spec::Spec;

/// The level of a shared bucket at the last answer, in tokens: it holds under any quota.
///
/// Other processes only take from the bucket. So until the next answer it has at most this level
/// and the tokens earned since, and a request for more is refused without a call. Tokens that other
/// processes give back, or a larger quota, make the level wrong: so it refuses for a second only.
///
/// # Orderings
///
/// `told` is stored after `tokens` (`Release`) and loaded before it (`Acquire`): a reader beside a
/// new answer may find the level too high, and never too low.
pub(crate) struct Shadow {
    /// The tokens at the last answer, negative in debt: the bits of a double; NaN before it.
    tokens: AtomicU64,
    /// The time at which the call of the answer was sent, in nanoseconds since the origin.
    told: AtomicU64,
}

/// The time for which a level refuses, in nanoseconds.
const LIFE: u64 = 1_000_000_000;

impl Default for Shadow {
    fn default() -> Shadow {
        Shadow { tokens: AtomicU64::new(f64::NAN.to_bits()), told: AtomicU64::new(0) }
    }
}

impl Shadow {
    /// Notes the level of an answer to a call that was sent at `sent`.
    pub(crate) fn tell(&self, spec: &Spec, credits: i64, sent: u64) {
        let tokens = credits as f64 / spec.per_token() as f64;
        // Rounded up, so that the level is never too low.
        self.tell_tokens(tokens + tokens.abs() * f64::EPSILON, sent);
    }

    /// Notes the level in tokens.
    pub(crate) fn tell_tokens(&self, tokens: f64, sent: u64) {
        self.tokens.store(tokens.to_bits(), Ordering::Relaxed);
        self.told.store(sent, Ordering::Release);
    }

    /// Adds tokens that go back to the store.
    pub(crate) fn put(&self, n: u64) {
        self.move_by(n as f64);
    }

    /// Adds tokens, or takes those of a negative number.
    pub(crate) fn move_by(&self, n: f64) {
        self.tokens.store((self.last() + n).to_bits(), Ordering::Relaxed);
    }

    /// Returns the tokens at the last answer, in debt below 0; NaN before it.
    #[inline]
    pub(crate) fn last(&self) -> f64 {
        f64::from_bits(self.tokens.load(Ordering::Relaxed))
    }

    /// Returns the level of the last answer with the tokens earned since: the most tokens in the
    /// store, negative in debt. `None` if it never answered.
    pub(crate) fn level(&self, terms: &Terms, now: u64) -> Option<f64> {
        let age = now.saturating_sub(self.told.load(Ordering::Acquire));
        let level = self.last() + age as f64 * terms.rate;
        (!level.is_nan()).then(|| level.min(terms.capacity as f64))
    }

    /// Returns the wait until the store may grant `n` tokens; `None` if it may do so now.
    pub(crate) fn wait(&self, terms: &Terms, n: u64, now: u64) -> Option<Duration> {
        let is_told = now.saturating_sub(self.told.load(Ordering::Relaxed)) < LIFE;
        let level = self.level(terms, now).filter(|_| is_told)?;
        let wait = terms.earning(n as f64 - terms.debt() as f64 - level);
        (!wait.is_zero()).then_some(wait)
    }
}
