//! The one atomic word, and the one compare-and-swap loop of the crate.
//!
//! # Orderings
//!
//! Callers may rely on: the steps of one bucket happen one after another, each on what the one before
//! left. That much is the word's total modification order and would hold relaxed.
//!
//! Loads are `Acquire` and commits `Release` for the clock's sake: a clock kept in memory (mock, coarse)
//! that was read before a commit is never read as earlier after that commit was seen, so such a clock
//! is never behind the stamp. A hardware counter may be read early by the processor, by
//! nanoseconds; the jitter window of [`State`] covers that.
//! Partner: every step on the same word. Checked by `a_coarse_clock_is_never_behind_the_stamp` in
//! `src/tests/loom.rs`, which fails with either ordering relaxed.
//!
//! A grant gives no other synchronisation: it does not publish the caller's data to whoever is granted next.

use crate::state::State;
use crate::sync::{AtomicU64, Ordering, const_fn};

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Bucket(AtomicU64);

impl Bucket {
    const_fn! {
        /// A bucket that was never charged.
        pub(crate) const fn new() -> Bucket {
            Bucket(AtomicU64::new(State::FULL.word()))
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        State::from_word(self.0.load(Ordering::Acquire))
    }

    /// Runs `step` on the state until what it returns is committed, or it returns nothing to commit.
    ///
    /// The clock is read after the word is loaded, again after every lost race: `step` never sees a
    /// reading that is older than the state.
    #[inline]
    pub(crate) fn drive<R>(
        &self,
        clock: impl Fn() -> u64,
        step: impl Fn(State, u64) -> (R, Option<State>),
    ) -> R {
        let mut state = self.state();
        loop {
            let now = clock();
            let (result, next) = step(state, now);
            let Some(next) = next else { return result };
            match self.0.compare_exchange_weak(
                state.word(),
                next.word(),
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return result,
                Err(word) => state = State::from_word(word),
            }
        }
    }
}
