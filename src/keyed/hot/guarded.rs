//! A bucket's word, as it is while it is spread over certain cells, or over none.

use super::slots::{HotSlot, Tenure};
use crate::bucket::atomic::BucketRef;
use crate::fault::{Fault, injected};
use crate::keyed::id::BucketId;
use crate::word::state::State;

/// It reads as `SEALED` while it is spread otherwise than was found.
#[derive(Clone, Copy)]
pub(crate) struct Guarded<'a, W> {
    pub(crate) word: W,
    pub(crate) slot: &'a HotSlot,
    pub(crate) id: BucketId,
    /// When it is spread.
    pub(crate) time: Option<Tenure>,
}

impl<W> Guarded<'_, W> {
    /// It is spread no more.
    pub(crate) fn leave(self) {
        if let Some(time) = self.time {
            self.slot.leave(time);
        }
    }
}

impl<W: BucketRef> BucketRef for Guarded<'_, W> {
    #[inline]
    fn state(self) -> State {
        let state = self.word.state();
        // Looked at after the word was loaded.
        let same = match self.time {
            None => self.slot.time_of(self.id).is_none(),
            // One that is spread was charged.
            Some(time) => self.slot.is_time(time) && state.is_level(),
        };
        if same || injected(Fault::NotWatched) { state } else { State::SEALED }
    }

    #[inline]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        // What was leased was looked at after the word: it may have been of the next bucket that has the cells.
        if let Some(time) = self.time
            && !self.slot.is_time(time)
            && !injected(Fault::OthersLeases)
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
