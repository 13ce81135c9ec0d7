//! The homes that keys leave by a change of the rules, until their counts have come over.
//!
//! *Invariant:* the count of a key is in one home, or also in an old one that is larger: a use for
//! which the new home has no room stays for a later, larger one. A key is charged in its new home
//! before the old one forgets it. So a caller that does not find it in the old home finds the
//! charge in the new one. No caller decides in an old home any more, or its decision is void.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use tollgate::AnyRule;

/// A table of keys under a rule.
pub trait CountTable: Clone {
    type Key;

    /// Returns a reading of the clock of the counts, in nanoseconds.
    fn now(&self) -> u64;

    /// Returns the time after which no use of now counts.
    fn longest_use(&self) -> Duration;

    /// Returns whether both are the same table.
    fn is(&self, other: &Self) -> bool;

    /// Returns the tokens that a key takes along.
    fn counts(&self) -> Carried;

    /// Returns the most tokens that a key can have used.
    fn capacity(&self) -> u64;

    fn holds(&self, key: &Self::Key) -> bool;

    fn use_of(&self, key: &Self::Key) -> Use;

    /// Takes tokens of a key, as many of them as are left.
    fn take(&self, key: &Self::Key, tokens: u64);

    /// Takes tokens of a key that it is to pay back, where a rule has debts.
    fn owe(&self, _key: &Self::Key, _tokens: u64) {}

    fn forget(&self, key: &Self::Key);
}

/// The tokens that a key takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    Used,
    Both,
}

/// The tokens that a key has used, those that are left to it, and those that it owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub used: u64,
    pub left: u64,
    pub owed: u64,
}

/// A home that keys have left.
#[derive(Clone)]
pub struct Left<P> {
    pub home: P,
    /// By the clock of the home.
    until: u64,
}

impl<P: CountTable> Left<P> {
    /// Returns a home that keys leave now.
    pub fn of(home: P) -> Left<P> {
        let longest = u64::try_from(home.longest_use().as_nanos()).unwrap_or(u64::MAX);
        Left { until: home.now().saturating_add(longest), home }
    }

    pub fn is_over(&self) -> bool {
        self.until <= self.home.now()
    }
}

/// The moves of keys. A save of all homes is without them: else a key could be in neither.
#[derive(Default)]
pub struct Moves(RwLock<()>);

impl Moves {
    /// Returns a guard while which no key moves.
    pub fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The homes that the keys of a limit have left. The default is that of a limit whose keys have
/// left none.
pub struct Past<P> {
    is_live: AtomicBool,
    left: RwLock<Vec<Left<P>>>,
}

impl<P> Default for Past<P> {
    fn default() -> Past<P> {
        Past { is_live: AtomicBool::default(), left: RwLock::default() }
    }
}

impl<P: CountTable> Past<P> {
    /// Adds a home that keys have left, unless it is `to`.
    pub fn put(&self, new: Left<P>, to: Option<&P>) {
        if to.is_some_and(|to| to.is(&new.home)) || new.is_over() {
            return;
        }
        let mut left = self.left.write().unwrap_or_else(PoisonError::into_inner);
        match left.iter_mut().find(|known| known.home.is(&new.home)) {
            Some(known) => *known = Left { until: known.until.max(new.until), ..new },
            None => left.push(new),
        }
        self.is_live.store(true, Relaxed);
    }

    /// Returns the homes in which a use may still count, the oldest first.
    pub fn left(&self) -> Vec<Left<P>> {
        let left = self.left.read().unwrap_or_else(PoisonError::into_inner);
        left.iter().filter(|left| !left.is_over()).cloned().collect()
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        // Relaxed: the flag is set before the limit is shared, and its end is a hint.
        self.is_live.load(Relaxed)
    }

    /// Charges a key of `to` with its use in the homes that it has left. A second call finds
    /// nothing there.
    #[inline]
    pub fn carry(&self, key: &P::Key, to: &P, moves: &Moves) {
        if self.is_live() {
            self.look(key, to, moves);
        }
    }

    #[cold]
    fn look(&self, key: &P::Key, to: &P, moves: &Moves) {
        let left = self.left.read().unwrap_or_else(PoisonError::into_inner);
        let mut are_over = true;
        let is_left = left.iter().any(|left| {
            let is_over = left.is_over();
            are_over &= is_over;
            !is_over && left.home.holds(key)
        });
        drop(left);
        if is_left || are_over {
            // A decision waits for no save: while one runs, the key stays in both homes.
            let still = match moves.0.try_read() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            self.change(key, to, still.is_some());
        }
    }

    /// Moves a key, and forgets the homes that are over.
    fn change(&self, key: &P::Key, to: &P, is_moved: bool) {
        let mut all = self.left.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|left| !left.is_over());
        for Left { home, .. } in all.iter().filter(|left| left.home.holds(key)) {
            let there = home.use_of(key);
            charge(to, key, there);
            if is_moved && there.used <= to.capacity() {
                home.forget(key);
            }
        }
        if all.is_empty() {
            self.is_live.store(false, Relaxed);
        }
    }
}

/// Charges a key with its use elsewhere.
///
/// A window has the tokens used. A bucket has the tokens left, and at most its burst less those
/// used: one that is lowered and raised again gives none back. A key that has used nothing is not
/// limited by an old burst.
pub fn charge<P: CountTable>(to: &P, key: &P::Key, there: Use) {
    if there.used == 0 {
        return;
    }
    let here = to.use_of(key);
    let (used, left) = (there.used.saturating_sub(here.used), here.left.saturating_sub(there.left));
    let tokens = match to.counts() {
        Carried::Used => used,
        Carried::Both => used.max(left),
    };
    if tokens > 0 {
        to.take(key, tokens);
    }
    if there.owed > here.owed {
        to.owe(key, there.owed - here.owed);
    }
}

/// Returns the time after which no key of a rule has less than all its tokens: the time to fill a
/// bucket, or two periods of a window.
pub fn longest_use(rule: AnyRule) -> Duration {
    let fills = (rule.capacity() as f64 / rule.tokens() as f64).max(2.0);
    Duration::try_from_secs_f64(rule.period().as_secs_f64() * fills).unwrap_or(Duration::MAX)
}
