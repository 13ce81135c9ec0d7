//! The state of a key that outlives its quota, its plan and its slot.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::key_window::KeyWindow;
use crate::lease::shadow::Shadow;
use crate::lease::terms::{Terms, TermsKind};
use crate::outage::fallback::Fallback;

/// The longest life of a refusal by the store, in nanoseconds: an operator may reset the bucket
/// meanwhile.
const MAX_BLOCK: u64 = 1_000_000_000;

/// The part of a key's state that does not depend on its terms: in tokens and times.
#[derive(Default)]
pub(crate) struct KeyState {
    /// The key in the form of the store.
    pub(crate) stored: Box<[u8]>,
    pub(crate) shadow: Shadow,
    /// The time until which the store has too few tokens, for a request of `blocks` or more.
    blocked: AtomicU64,
    /// The fewest tokens of a request that `blocked` refuses.
    blocks: AtomicU64,
    /// Tokens that were granted or charged without the store, and that the store does not know of.
    pub(crate) spent: AtomicU64,
    /// The tokens of outages. They last until the store answers for this key: an answer to a probe
    /// does not fill them.
    fallback: Mutex<Option<Fallback>>,
    /// The window of the last answer, if the rule is one.
    pub(super) of_window: Mutex<KeyWindow>,
}

impl KeyState {
    pub(crate) fn new(stored: Vec<u8>) -> KeyState {
        KeyState { stored: stored.into(), ..KeyState::default() }
    }

    pub(crate) fn fallback(&self) -> MutexGuard<'_, Option<Fallback>> {
        self.fallback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes tokens that go back to the store: it is asked for them.
    pub(crate) fn put(&self, n: u64) {
        self.shadow.put(n);
        self.blocked.store(0, Relaxed);
    }

    /// Returns the tokens that the store can have; `None` if it never answered.
    pub(crate) fn level(&self, terms: &Terms, now: u64) -> Option<f64> {
        match terms.kind {
            TermsKind::Bucket(_) => self.shadow.level(terms, now),
            TermsKind::Window(_) => self.window_level(terms, now),
        }
    }

    /// Returns the share of the tokens with which an outage begins: of those that the store can
    /// have, without those that were spent meanwhile. It can have a burst if it never answered.
    pub(crate) fn share(&self, terms: &Terms, share: f64, now: u64) -> f64 {
        let level = self.level(terms, now).unwrap_or(terms.capacity as f64);
        (level - self.spent.load(Relaxed) as f64) * share
    }

    /// Returns the time at which the bucket is full, or the count of the window is empty; 0 if the
    /// store never answered.
    pub(crate) fn full_at(&self, terms: &Terms, now: u64) -> u64 {
        if let TermsKind::Window(_) = terms.kind {
            return self.window_forgotten_at(terms);
        }
        let missing = self.shadow.level(terms, now).map(|level| terms.capacity as f64 - level);
        missing.map_or(0, |missing| now.saturating_add(terms.earning(missing).as_nanos() as u64))
    }

    /// Refuses requests of `blocks` tokens or more for `wait` nanoseconds.
    pub(crate) fn block(&self, blocks: u64, wait: u64, now: u64) {
        self.block_until(blocks, now.saturating_add(wait.min(MAX_BLOCK)));
    }

    /// Refuses requests of `blocks` tokens or more until a time.
    pub(super) fn block_until(&self, blocks: u64, until: u64) {
        self.blocks.store(blocks, Relaxed);
        self.blocked.store(until, Relaxed);
    }

    /// Returns the wait of a request of `n` tokens, if the store refused as many.
    pub(crate) fn blocked(&self, n: u64, now: u64) -> Option<Duration> {
        let wait = self.blocked.load(Relaxed).saturating_sub(now);
        (wait > 0 && n >= self.blocks.load(Relaxed)).then(|| Duration::from_nanos(wait))
    }

    /// Makes the wait that of other terms: the same tokens are earned at another rate. Another
    /// limit of a window has as many tokens more, or fewer.
    pub(crate) fn change(&self, from: &Terms, to: &Terms, now: u64) {
        if let TermsKind::Window(_) = to.kind {
            self.shadow.move_by(to.capacity as f64 - from.capacity as f64);
            return self.block_until(0, 0);
        }
        let wait = self.blocked.load(Relaxed).saturating_sub(now) as f64 * (from.rate / to.rate);
        self.block(self.blocks.load(Relaxed), wait as u64, now);
    }
}
