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
//! `src/tests/models/`, which fails with either ordering relaxed.
//!
//! A grant gives no other synchronisation: it does not publish the caller's data to whoever is granted next.

use crate::control::{self, Control};
use crate::state::State;
use crate::sync::{AtomicU64, Ordering, const_fn};

// What is hot is a type of its own below, since a closure cannot be told to be inlined, and as a function it passes
// its reading through memory: 30 instructions more.

/// Where a reading comes from, for a state that was loaded before.
pub(crate) trait Read<T>: Copy {
    fn read(&self, state: State) -> T;
}

/// A step: what comes of a state and a reading, and the state to commit, if any.
pub(crate) trait Advance<T> {
    type Out;
    fn advance(&self, state: State, reading: &T) -> (Self::Out, Option<State>);
}

/// A closure as a step or a reading.
#[derive(Clone, Copy)]
struct By<F>(F);

impl<T, F: Fn(State) -> T + Copy> Read<T> for By<F> {
    fn read(&self, state: State) -> T {
        (self.0)(state)
    }
}

impl<T, R, F: Fn(State, &T) -> (R, Option<State>)> Advance<T> for By<F> {
    type Out = R;

    fn advance(&self, state: State, reading: &T) -> (R, Option<State>) {
        (self.0)(state, reading)
    }
}

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Bucket(AtomicU64);

impl Bucket {
    const_fn! {
        /// A bucket that was never charged.
        pub(crate) const fn new() -> Bucket {
            Bucket::from_state(State::FULL)
        }
    }

    const_fn! {
        pub(crate) const fn from_state(state: State) -> Bucket {
            Bucket(AtomicU64::new(state.word()))
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        State::from_word(self.0.load(Ordering::Acquire))
    }

    /// Advances by `step` on the state and a reading until what it returns is committed, or it returns nothing to
    /// commit; and tells that reading.
    ///
    /// The clock is read after the word is loaded, again after every lost race: `step` never sees a
    /// reading that is older than the state, unless it is one that [`State::admits_reading`].
    #[inline(always)]
    pub(crate) fn advance<T: Copy, A: Advance<T>>(&self, read: impl Read<T>, step: A) -> (A::Out, T) {
        let read = control::stop(Control::NoRereadAfterRace, read);
        let mut state = self.state();
        loop {
            let reading = read.read(state);
            let (result, next) = step.advance(state, &reading);
            let Some(next) = next else { return (result, reading) };
            let (from, to) = (state.word(), next.word());
            let swap = || self.0.compare_exchange_weak(from, to, Ordering::Release, Ordering::Acquire);
            match control::commit(&self.0, next, swap) {
                Ok(_) => return (result, reading),
                Err(word) => state = State::from_word(word),
            }
        }
    }

    /// As [`advance`](Bucket::advance), by closures.
    pub(crate) fn drive<T: Copy, R>(
        &self,
        read: impl Fn(State) -> T + Copy,
        step: impl Fn(State, &T) -> (R, Option<State>),
    ) -> (R, T) {
        self.advance(By(read), By(step))
    }
}
