//! A bucket's word, as it is while it is spread over certain cells, or over none.

use super::seats::{Id, Seat};
use crate::bucket::Word;
use crate::control::{Control, broken};
use crate::state::State;

/// It reads as `SEALED` while it is spread otherwise than was found.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a, W> {
    pub(super) word: W,
    pub(super) seat: &'a Seat,
    pub(super) id: Id,
    /// That it is spread in.
    pub(super) life: Option<u64>,
}

impl<W: Word> Word for Watched<'_, W> {
    #[inline]
    fn state(self) -> State {
        let state = self.word.state();
        // Looked at after the word was loaded.
        let same = match self.life {
            None => self.seat.life_of(self.id).is_none(),
            // One that is spread was charged.
            life => self.seat.life() == life && state.is_level(),
        };
        if same || broken(Control::NotWatched) { state } else { State::SEALED }
    }

    #[inline]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        self.word.commit(state, next).map_err(|_| self.state())
    }

    #[inline]
    fn still_has(self, state: State) -> bool {
        self.state() == state
    }
}
