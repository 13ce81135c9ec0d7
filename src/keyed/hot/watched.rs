//! A bucket's word, as it is while it is spread over certain cells, or over none.

use super::seats::{Seat, Time};
use crate::bucket::atomic::Word;
use crate::fault::{Control, broken};
use crate::keyed::id::Id;
use crate::word::state::State;

/// It reads as `SEALED` while it is spread otherwise than was found.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a, W> {
    pub(crate) word: W,
    pub(crate) seat: &'a Seat,
    pub(crate) id: Id,
    /// When it is spread.
    pub(crate) time: Option<Time>,
}

impl<W> Watched<'_, W> {
    /// It is spread no more.
    pub(crate) fn leave(self) {
        if let Some(time) = self.time {
            self.seat.leave(time);
        }
    }
}

impl<W: Word> Word for Watched<'_, W> {
    #[inline]
    fn state(self) -> State {
        let state = self.word.state();
        // Looked at after the word was loaded.
        let same = match self.time {
            None => self.seat.time_of(self.id).is_none(),
            // One that is spread was charged.
            Some(time) => self.seat.is_time(time) && state.is_level(),
        };
        if same || broken(Control::NotWatched) { state } else { State::SEALED }
    }

    #[inline]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        // What was leased was looked at after the word: it may have been of the next bucket that has the cells.
        if let Some(time) = self.time
            && !self.seat.is_time(time)
            && !broken(Control::OthersLeases)
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
