//! The tokens of a lease of a window: a number that ends with the window.

use std::time::Duration;

use tollgate::{Clock, Denied, Granted, Moment, Reason};

use super::lease_time::nanos;
use crate::sync::{AtomicU64, Ordering};

/// The bits of the word that count tokens. The others count windows.
const TOKENS: u64 = (1 << 40) - 1;

/// The tokens of one key that one process holds, all of one window.
///
/// The word has the tokens, and above them the number of the window. A take whose clock reading is
/// past `until` finds no token.
///
/// # Orderings
///
/// One writer at a time begins a window. It stores the word of the new window without tokens, then
/// `until` (`Release`, by a swap: loom orders no plain store), and adds tokens after that. A taker
/// loads the word, then `until` (`Acquire`), and exchanges the word. A taker with the `until` of a
/// later window has the word of the earlier one no more: its exchange reads the latest word, and
/// fails. So no token is taken after the end of its window. Checked by `tests/models.rs`.
pub(crate) struct EndingTokens {
    clock: Clock,
    origin: Moment,
    word: AtomicU64,
    /// The end of the window on the local clock, in nanoseconds since the origin.
    pub(super) until: AtomicU64,
}

impl EndingTokens {
    pub(crate) fn new(clock: Clock, origin: Moment) -> EndingTokens {
        EndingTokens { clock, origin, word: AtomicU64::new(0), until: AtomicU64::new(0) }
    }

    /// Returns the nanoseconds since the origin.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        nanos(self.clock.now().since(self.origin))
    }

    /// Returns the nanoseconds until the window ends.
    #[inline]
    pub(crate) fn rest(&self) -> u64 {
        self.until.load(Ordering::Acquire).saturating_sub(self.now())
    }

    /// Changes the tokens of a window that runs by `change`, which may refuse. Returns the tokens
    /// before, and the rest of the window; `Err` has the tokens that stay.
    #[inline]
    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Result<(u64, u64), u64> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let rest = self.rest();
            let tokens = if rest > 0 { word & TOKENS } else { 0 };
            let Some(changed) = change(tokens).filter(|_| rest > 0) else { return Err(tokens) };
            let next = word & !TOKENS | changed.min(TOKENS);
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok((tokens, rest)),
                Err(found) => word = found,
            }
        }
    }

    /// Takes `n` tokens, all or none.
    #[inline]
    pub(crate) fn take(&self, n: u64) -> Result<Granted, Denied> {
        match self.update(|tokens| tokens.checked_sub(n)) {
            Ok((before, rest)) => Ok(Granted::from_parts(n, before - n, Duration::from_nanos(rest))),
            Err(tokens) => Err(Denied::from_parts(Reason::Empty, n, tokens, None)),
        }
    }

    /// Takes the tokens, up to `n`, and returns their number.
    pub(crate) fn take_up_to(&self, n: u64) -> u64 {
        self.update(|tokens| Some(tokens.saturating_sub(n))).map_or(0, |(before, _)| before.min(n))
    }

    /// Adds tokens of the window that runs. Those of a window that is over are lost.
    pub(crate) fn put(&self, n: u64) {
        let _ = self.update(|tokens| Some(tokens.saturating_add(n)));
    }

    /// Returns the tokens.
    pub(crate) fn held(&self) -> u64 {
        let tokens = self.word.load(Ordering::Acquire) & TOKENS;
        if self.rest() > 0 { tokens } else { 0 }
    }

    /// Begins another window, which ends at `until`. Returns the tokens of the one before. The
    /// caller sees to it that no two calls overlap.
    pub(crate) fn begin(&self, until: u64) -> u64 {
        let ended = self.empty();
        self.until.swap(until, Ordering::AcqRel);
        ended
    }

    /// Takes the end of the window as `until`, if that is later: each estimate is early.
    pub(crate) fn extend(&self, until: u64) {
        self.until.fetch_max(until, Ordering::AcqRel);
    }

    /// Drops the tokens of a window that is over, and returns their number. As `begin`, it has no
    /// other writer beside it.
    pub(crate) fn drop_ended(&self) -> u64 {
        if self.rest() > 0 { 0 } else { self.empty() }
    }

    /// Counts one window more, without tokens. Returns the tokens of the one before.
    fn empty(&self) -> u64 {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let next = (word | TOKENS).wrapping_add(1);
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return word & TOKENS,
                Err(found) => word = found,
            }
        }
    }
}
