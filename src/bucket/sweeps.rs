//! The sweeps of words that count windows.
//!
//! The stamp of such a word wraps after 64 periods, or 19.5 hours, at the least. A word without a
//! commit for a turn would read as one that was used a moment ago. All words of a limiter are thus
//! looked at once in half a turn of the stamp, and those whose tokens are forgotten are removed, or
//! get a new stamp. The call that finds a sweep due makes it. There is no thread for it, and a
//! limiter that no caller uses is swept by the next one.
//!
//! ```text
//!  sweep                        due                        must       the stamps of then wrap
//!  |-------- half a turn -------|---- 3/8 of a turn -------|----- 1/8 -----|
//!   attempts decide              one call sweeps, the       each call
//!                                others take the loop       sweeps first
//! ```
//!
//! *Invariant: no call decides on a word whose stamp is older than 15/16 of a turn, because words
//! that are not swept have live tokens, and those live for a 64th of a turn at most.* A thread that
//! is stopped for half a turn between its reading and its commit may leave an older stamp. Its word
//! counts too much after another half a turn, and never too little.
//!
//! # Orderings
//!
//! *Release: the end of a sweep, so that a thread that sees the later time sees the swept words.
//! Partner: the Acquire loads of the time.* The commits on the words need no more, since a sweep is
//! a step like others.

use crate::rule::counts::Counting;
use crate::sync::{AtomicU64, Ordering, const_fn};

#[derive(Debug)]
pub(crate) struct Sweeps {
    /// The tick from which on no attempt decides; 0 as long as the raw tick scale is not known.
    until: AtomicU64,
    /// The tick at which the next sweep is due; 0 before the first call.
    due: AtomicU64,
    /// Ticks in which attempts decide: from a sweep to the next, which is half the stamp's range.
    /// In a limiter without sweeps, they count from the beginning of a turn.
    pub(super) span: u64,
}

/// Returns the least tick of a turn at which a bucket's reading may be in the backward window of a
/// stamp of that turn: those ticks are left to the loop. They are less than the stamps of reserved
/// words.
pub(super) const fn turn_end(mask: u64) -> u64 {
    mask - mask.div_ceil(64) - mask.div_ceil(4096) - 3
}

impl Sweeps {
    const_fn! {
        /// Returns the sweeps of words with a stamp up to `mask`.
        pub(super) const fn new(mask: u64, counting: Counting) -> Sweeps {
            let (span, until) = match counting {
                Counting::Bucket => (turn_end(mask), 0),
                // The tick is 0 for ever, and the stamp is a number.
                Counting::Places => (mask, 1),
                _ => (mask / 2, 0),
            };
            Sweeps { until: AtomicU64::new(until), due: AtomicU64::new(0), span }
        }
    }

    /// Returns the tick from which on no attempt decides.
    #[inline(always)]
    pub(super) fn until(&self) -> u64 {
        self.until.load(Ordering::Acquire)
    }

    /// Returns whether attempts decide as long as they may.
    pub(super) fn is_open(&self) -> bool {
        self.until() == self.due.load(Ordering::Acquire)
    }

    /// Lets attempts decide until the next sweep is due. The raw tick scale is known.
    pub(super) fn open(&self) {
        self.until.store(self.due.load(Ordering::Acquire), Ordering::Release);
    }

    /// Runs `sweep`, which [notes](Sweeps::swept) its beginning, if it is due at a tick.
    ///
    /// `sweeping` is 1 while a thread sweeps. Then another thread returns at once, unless words may
    /// wrap.
    pub(super) fn run(&self, tick: u64, sweeping: &AtomicU64, sweep: impl FnOnce()) {
        let due = self.due.load(Ordering::Acquire);
        if due == 0 {
            // No word was used before.
            self.swept(tick);
            return;
        }
        let over = tick.wrapping_sub(due).cast_signed();
        let part = |eighths: u64| (self.span / 4 * eighths).cast_signed();
        // A clock that was set back by more than a quarter of a turn may be anywhere.
        let set_back = over < -self.span.cast_signed() - part(2);
        if over < 0 && !set_back {
            return;
        }
        let must = set_back || over >= part(3);
        let other = sweeping.swap(1, Ordering::AcqRel) != 0;
        if other && !must {
            return;
        }
        sweep();
        sweeping.store(0, Ordering::Release);
    }

    /// Returns the whole ticks from a stamp to a tick, not modulo the range; `None` if the stamp is
    /// later.
    ///
    /// Each stamp is from after the latest sweep, or of a token that was live then, and from before
    /// each call sweeps.
    pub(crate) fn age(&self, stamp: u64, tick: u64) -> Option<u64> {
        let (due, part) = (self.due.load(Ordering::Acquire), self.span / 4);
        let (from, mask) = (due.wrapping_sub(self.span + part), 2 * self.span + 1);
        let stamped = from.wrapping_add(stamp.wrapping_sub(from) & mask);
        u64::try_from(tick.wrapping_sub(stamped).cast_signed()).ok()
    }

    /// Notes that all words were looked at after a tick.
    pub(super) fn swept(&self, tick: u64) {
        self.due.store(tick.wrapping_add(self.span), Ordering::Release);
    }
}
