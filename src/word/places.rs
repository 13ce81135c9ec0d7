//! The refill of a word that counts places in use: no place comes back by time.
//!
//! | bits    | field  | meaning                                                    |
//! |---------|--------|------------------------------------------------------------|
//! | `S..64` | count  | places in use; all ones in a reserved word and a tombstone |
//! | `0..S`  | number | commits on the word, modulo `2^S`                          |
//!
//! # Invariants
//!
//! * A key with a place in use is never forgotten, because a word [is idle](PlaceTerms::is_idle)
//!   only if its count is 0. Such a word says the same as no word, so it needs no eviction grace.
//! * A compare-and-swap for one key never hits the next key of a table slot, because each commit
//!   raises the number, and the next key goes on from the number that a
//!   [vacated](PlaceTerms::vacated) slot keeps. So the slot never has a word twice.
//! * No clock reading has a part in a step: the tick of a reading is not looked at.
//!
//! The number wraps after 2^43 commits, which is 5 days at 20 million a second. The second
//! invariant needs a thread that was stopped, between the load of a word and its compare-and-swap,
//! for exactly a multiple of that number. Such a thread takes one place too many of the slot's next
//! key. In a map a wrap changes nothing: there a word is of one key only.

use crate::fault::{Fault, injected};
use crate::word::state::{Balance, Reading, Refill, State};
use crate::word::terms::Terms;
use crate::word::tick::TickScale;

/// The terms of a word that counts places in use. The capacity is the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceTerms(Terms);

impl PlaceTerms {
    /// Returns the same reading, for a word that counts places, perhaps under another limit.
    #[inline(always)]
    pub(crate) fn of(Reading { refill, at, tick }: Reading, limit: Option<u64>) -> Reading<PlaceTerms> {
        let capacity = limit.unwrap_or(refill.capacity);
        Reading { refill: PlaceTerms(Terms { capacity, ..refill }), at, tick }
    }

    /// Returns the places in use; 0 of a reserved word, and of a tombstone.
    fn count(&self, state: State) -> u64 {
        match state.stored(&self.0) {
            all_ones if all_ones == u64::MAX >> self.0.widths.stamp => 0,
            count => count,
        }
    }

    /// Returns whether the word says the same as no word.
    pub(crate) fn is_idle(&self, state: State) -> bool {
        self.count(state) == 0 || injected(Fault::PlacesForgotten)
    }

    /// Returns the word of a slot without a key, after this word of its latest key.
    pub(crate) fn vacated(&self, state: State) -> State {
        if state == State::FULL || injected(Fault::NumberFromZero) {
            return State::FULL;
        }
        // The top numbers would make a reserved word.
        let number = state.word() & self.0.mask;
        State::tombstone(&self.0, if number < self.0.mask - 2 { number } else { 0 })
    }
}

impl Refill for PlaceTerms {
    const COUNTS: bool = true;

    #[inline(always)]
    fn terms(&self) -> &Terms {
        &self.0
    }

    fn capacity(&self) -> u64 {
        self.0.capacity
    }

    /// The stamp to commit is the next number.
    #[inline(always)]
    fn view(&self, state: State, _: u64) -> Balance {
        let raised = u64::from(!injected(Fault::CommitsUncounted));
        let stamp = state.word().wrapping_add(raised) & self.0.mask;
        Balance { level: self.count(state), stamp, lag: 0, adopt: false }
    }

    #[inline(always)]
    fn view_ahead(&self, state: State, now: u64) -> Balance {
        self.view(state, now)
    }

    fn has(&self, balance: &Balance, units: u64) -> bool {
        balance.level + units <= self.0.capacity
    }

    #[inline(always)]
    fn left_after(&self, balance: &Balance, units: u64) -> Option<u64> {
        self.available(balance.level, balance.lag).checked_sub(units)
    }

    fn after_take(&self, level: u64, units: u64) -> u64 {
        level + units
    }

    fn after_refund(&self, level: u64, units: u64) -> u64 {
        level.saturating_sub(units)
    }

    fn before_take(&self, level: u64, units: u64) -> u64 {
        level - units
    }

    fn undone(&self, balance: Balance, _: u64, units: u64, _: u64, _: u64) -> Balance {
        Balance { level: self.after_refund(balance.level, units), ..balance }
    }

    fn credit(&self, balance: &Balance) -> u64 {
        self.available(balance.level, 0)
    }

    fn available(&self, level: u64, _: u64) -> u64 {
        self.0.capacity.saturating_sub(level)
    }

    /// The time at which a place is given back is not known.
    fn wait(&self, _: u64, _: u64, _: u64, _: u64) -> (u64, TickScale) {
        (0, TickScale::NANOS)
    }
}
