//! The word of a bucket in the mode in which the bucket was found: plain, or spread in one tenure.

use super::slots::{HotSlot, Tenure};
use crate::bucket::atomic::{BucketRef, rarely};
use crate::fault::{Fault, injected};
use crate::keyed::id::BucketId;
use crate::word::state::State;

/// A word that reads as `SEALED` unless the bucket is still in the mode in which it was found.
#[derive(Clone, Copy)]
pub(crate) struct Guarded<'a, W> {
    pub(crate) word: W,
    pub(crate) slot: &'a HotSlot,
    pub(crate) id: BucketId,
    /// The tenure in which the bucket is spread. `None`: plain.
    pub(crate) tenure: Option<Tenure>,
}

impl<W> Guarded<'_, W> {
    /// Ends the tenure of a spread bucket.
    pub(crate) fn leave(self) {
        if let Some(tenure) = self.tenure {
            self.slot.leave(tenure);
        }
    }
}

impl<W: BucketRef> BucketRef for Guarded<'_, W> {
    #[inline(always)]
    fn state(self) -> State {
        let state = self.word.state();
        // The hot slot is read after the word.
        let same = match self.tenure {
            None => self.slot.tenure_of(self.id).is_none(),
            // A spread bucket was charged.
            Some(tenure) => self.slot.is_tenure(tenure) && state.is_level(),
        };
        if !same && !injected(Fault::NotWatched) {
            rarely();
            return State::SEALED;
        }
        state
    }

    #[inline]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        // Leases were read after the word: they may be of the next bucket that has the cells.
        if let Some(tenure) = self.tenure
            && !self.slot.is_tenure(tenure)
            && !injected(Fault::ForeignLeases)
        {
            return Err(State::SEALED);
        }
        self.word.commit(state, next).map_err(|_| self.state())
    }

    #[inline]
    fn still_has(self, state: State) -> bool {
        self.state() == state
    }
}
