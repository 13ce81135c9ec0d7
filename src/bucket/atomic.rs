//! The one atomic word, and the one compare-and-swap of the crate: in [an attempt](BucketRef::attempt), which most decisions are,
//! and in [a loop](BucketRef::update), which all others are.
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
//! Partner: every step on the same word. Checked by `a_clock_in_memory_is_never_behind_the_stamp` and
//! `a_clock_in_memory_is_not_behind_after_a_lost_race` in `src/tests/models/`, which fail with any of these relaxed.
//!
//! A grant gives no other synchronisation: it does not publish the caller's data to whoever is granted next.

use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering, const_fn, plain_bytes};
use crate::word::state::{Outcome, State};
use crate::word::terms::Reading;

// What is hot is a type of its own below, since a closure cannot be told to be inlined, and as a function it passes
// its reading through memory: 30 instructions more.

/// Where a reading comes from, for a state that was loaded before.
pub(crate) trait Read<T>: Copy {
    fn read(&self, state: State) -> T;
}

/// Where the reading of an attempt comes from.
pub(crate) trait ReadOnce: Read<Reading> {
    /// As the clock counts, or from before.
    fn count(&self) -> u64;
    /// What was read, as a reading for a state. A take by a reading from before the word was loaded goes `near` the stamp
    /// only.
    fn admitted(&self, state: State, count: u64) -> FreshReading;
}

/// A reading, and by how many ticks a take may be ahead of the stamp if the clock was read before the word was loaded.
///
/// Not an option of one: whoever takes that apart looks for its tag among the terms, at run time.
pub(crate) struct FreshReading {
    pub(crate) reading: Reading,
    pub(crate) near: u64,
    /// Whether the state admits it.
    pub(crate) fits: bool,
}

/// What an attempt does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It reads the clock: the word is not held over that, so fewer races are lost.
    ClockFirst,
    /// It loads the word: the reading is good for any stamp that is behind it.
    WordFirst,
}

/// Why nothing came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// The state does not admit the reading.
    StaleReading,
    /// Somebody else committed.
    LostRace,
}

/// A closure as a reading.
impl<T, F: Fn(State) -> T + Copy> Read<T> for F {
    fn read(&self, state: State) -> T {
        self(state)
    }
}

/// The word of a bucket, as one caller has found it: what steps are run on.
pub(crate) trait BucketRef: Copy {
    /// What it holds. [`State::SEALED`] if it is no longer the bucket that was found.
    fn state(self) -> State;

    /// Puts the next state in place of this one; else tells what is there.
    fn commit(self, state: State, next: State) -> Result<(), State>;

    /// Whether the bucket held this state, which was loaded before, all the time since: what is not committed is decided by that.
    fn still_has(self, state: State) -> bool;

    /// Takes `n` tokens in one attempt. Nothing comes of it if the state does not admit the reading, or if somebody else
    /// commits meanwhile.
    ///
    /// Nearly every decision is this one. With no loop, little is kept over the call of the clock: that is 6 ns.
    #[inline(always)]
    fn attempt(self, first: Order, read: impl ReadOnce, n: u64) -> Result<(Outcome, Reading), Miss> {
        let early = if first == Order::ClockFirst { read.count() } else { 0 };
        let state = self.state();
        let count = if first == Order::ClockFirst { early } else { read.count() };
        let FreshReading { reading, near, fits } = read.admitted(state, count);
        if !fits {
            return Err(Miss::StaleReading);
        }
        let (outcome, next) = state.take_ahead(&reading, n);
        let Some(next) = next else {
            return if self.still_has(state) { Ok((outcome, reading)) } else { Err(Miss::LostRace) };
        };
        if first == Order::ClockFirst && !state.within_skew(&reading, near) {
            return Err(Miss::StaleReading);
        }
        match self.commit(state, next) {
            Ok(()) => Ok((outcome, reading)),
            Err(_) => Err(Miss::LostRace),
        }
    }

    /// Updates by `step` on the state and a reading until what it returns is committed, or it returns nothing to
    /// commit; and tells that reading.
    ///
    /// The clock is read after the word is loaded, again after every lost race: `step` never sees a
    /// reading that is older than the state, unless it is one that [`State::accepts_stale`].
    #[inline(always)]
    fn update<T: Copy, O>(
        self,
        read: impl Read<T>,
        step: impl Fn(State, &T) -> (O, Option<State>),
    ) -> (O, T) {
        let read = stop(Fault::NoRereadAfterRace, read);
        let mut state = self.state();
        loop {
            let reading = read.read(state);
            let (result, next) = step(state, &reading);
            match next {
                None if self.still_has(state) => return (result, reading),
                None => state = self.state(),
                Some(next) => match self.commit(state, next) {
                    Ok(()) => return (result, reading),
                    Err(found) => state = found,
                },
            }
        }
    }
}

plain_bytes! {
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Bucket(AtomicU64);
}

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

    /// Gives it a state, whatever it had. Of a bucket that is sealed, by who sealed it: nobody else changes it then.
    pub(crate) fn set(&self, state: State) {
        self.0.store(state.word(), Ordering::Release);
    }
}

/// A bucket that is nobody else's: from the one that was found nobody can take it away but by sealing it.
impl BucketRef for &Bucket {
    #[inline(always)]
    fn state(self) -> State {
        Bucket::state(self)
    }

    #[inline(always)]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        let (from, to) = (state.word(), next.word());
        let swap = || self.0.compare_exchange_weak(from, to, Ordering::Release, Ordering::Acquire);
        commit(&self.0, next, swap).map(drop).map_err(State::from_word)
    }

    // What it refuses on was its own.
    #[inline(always)]
    fn still_has(self, _: State) -> bool {
        true
    }
}

/// A commit, or a store of what is sealed if that is broken.
#[inline(always)]
fn commit(word: &AtomicU64, next: State, swap: impl FnOnce() -> Result<u64, u64>) -> Result<u64, u64> {
    if injected(Fault::SealByStore) && next == State::SEALED {
        word.store(next.word(), Ordering::Release);
        return Ok(next.word());
    }
    swap()
}

/// A reading, for a whole call if that is broken.
#[cfg(not(control))]
#[inline(always)]
pub(crate) fn stop<T, R: Read<T>>(_: Fault, read: R) -> R {
    read
}

/// A reading, for a whole call if that is broken.
#[cfg(control)]
pub(crate) fn stop<T: Copy, R: Read<T>>(control: Fault, read: R) -> Stopped<T, R> {
    let now = injected(control).then(|| read.read(State::FULL));
    Stopped { read, now }
}

#[cfg(control)]
#[derive(Clone, Copy)]
pub(crate) struct Stopped<T, R> {
    read: R,
    now: Option<T>,
}

#[cfg(control)]
impl<T: Copy, R: Read<T>> Read<T> for Stopped<T, R> {
    fn read(&self, state: State) -> T {
        self.now.unwrap_or_else(|| self.read.read(state))
    }
}
