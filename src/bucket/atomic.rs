//! The atomic word of a bucket, and the one compare-and-swap of it.
//!
//! Most decisions are [an attempt](BucketRef::attempt); all others are [a loop](BucketRef::update).
//!
//! # Orderings
//!
//! Callers may rely on this: the steps of one bucket happen one after another, each on the state
//! that the one before left. That much is the word's total modification order and would hold
//! relaxed.
//!
//! *Release: each commit pairs with the Acquire load of each later step on the same word, so that a
//! clock kept in memory (mock, coarse) is never behind the stamp: read before a commit, it is never
//! read as earlier after that commit was seen; models:
//! `a_clock_in_memory_is_never_behind_the_stamp` and
//! `a_clock_in_memory_is_not_behind_after_a_lost_race` in `src/tests/models/`, which fail with any
//! of these relaxed.* The processor may read a hardware counter early, by nanoseconds; the jitter
//! window of [`State`] covers that.
//!
//! A grant gives no other synchronisation: it does not publish the caller's data to the next caller
//! that is granted.

use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering, const_fn};
use crate::word::by_refill::{ByRefill, OwnRefill};
use crate::word::state::{Origin, Reading, Refill, State, TakeOutcome};
use crate::word::verb::Take;

// The readings are types: a closure cannot be told to be inlined, and as a function it passes its
// reading through memory, which is 30 instructions more.

/// A source of clock readings.
pub(crate) trait ReadClock: Copy {
    /// Returns the reading for a state that was loaded before.
    fn read(&self, state: State) -> Reading;
    /// Returns a raw reading of the clock, or an earlier reading.
    fn raw(&self) -> u64;
    /// Returns `raw` as a reading for a state of a word with the refill `P`.
    ///
    /// A take by a reading from before the word was loaded, `first` of the two, may be ahead of the
    /// stamp by at most `near` ticks.
    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading;
}

/// A reading, and whether a state admits it.
///
/// Not an `Option`: the compiler places the discriminant inside `Terms` and tests it at run time.
pub(crate) struct FreshReading {
    pub(crate) reading: Reading,
    /// Ticks by which a take may be ahead of the stamp, if the clock was read before the word.
    pub(crate) near: u64,
    /// The tick from which its ticks count, of a dated reading or under a plan; else 0.
    pub(crate) begun: u64,
    /// Whether the state admits it.
    pub(crate) fits: bool,
    /// Whether a state that was committed just after it may be decided on.
    pub(crate) may_lag: bool,
}

/// The first act of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Reads the clock first: the word is not held over that, so fewer races are lost.
    ClockFirst,
    /// Loads the word first: the reading is good for any stamp that is behind it.
    WordFirst,
}

/// The reason why an attempt came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// The state does not admit the reading.
    StaleReading,
    /// Another thread committed.
    LostRace,
    /// The key has no entry.
    Absent,
    /// No attempt was made: the limiter has a hook or a function of plans, or the attempt does not
    /// know the words.
    Untried,
}

/// The word of a bucket, as one caller has found it. Steps are run on it.
pub(crate) trait BucketRef: Copy {
    /// Returns the state; [`State::SEALED`] if this is no longer the bucket that was found.
    ///
    /// A slot of a table whose word is reserved reads as sealed, too.
    fn state(self) -> State;

    /// Replaces `state` by `next`, or returns the state that is there.
    fn commit(self, state: State, next: State) -> Result<(), State>;

    /// Returns whether the bucket still holds `state`, and has held it since it was loaded.
    ///
    /// A decision that commits nothing (a refusal) is only valid if this is true.
    fn still_has(self, state: State) -> bool;

    /// Returns the origin by which a receipt finds the bucket.
    fn origin(self) -> Origin {
        Origin::Own
    }

    /// Takes from a word of the terms' own refill, as [`attempt_by`](BucketRef::attempt_by) does.
    #[inline(always)]
    fn attempt(self, first: Order, read: impl ReadClock, take: Take) -> Result<(TakeOutcome, Reading), Miss> {
        self.attempt_by(first, read, take, OwnRefill)
    }

    /// Takes in one attempt, or returns why nothing came of it.
    ///
    /// It fails if the state does not admit the reading, or if another thread commits meanwhile.
    ///
    /// Nearly every decision is an attempt. With no loop, few values are kept over the call of the
    /// clock: that saves 6 ns.
    // An arm of an attempt that is inlined into a debug build has a frame of its own.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn attempt_by<B: ByRefill>(
        self,
        first: Order,
        read: impl ReadClock,
        take: Take,
        by: B,
    ) -> Result<(TakeOutcome, Reading<B::Refill>), Miss> {
        let early = if first == Order::ClockFirst { read.raw() } else { 0 };
        let state = self.state();
        let raw = if first == Order::ClockFirst { early } else { read.raw() };
        let FreshReading { reading, near, begun, fits, .. } = read.admitted::<B::Refill>(state, raw, first);
        if !fits {
            return Err(Miss::StaleReading);
        }
        let Some(reading) = by.at(reading, begun) else { return Err(Miss::StaleReading) };
        let (outcome, next) = state.take_ahead(&reading, take);
        let Some(next) = next else {
            return if self.still_has(state) { Ok((outcome, reading)) } else { Err(Miss::LostRace) };
        };
        if first == Order::ClockFirst && !state.within_skew(&reading, near) {
            return Err(Miss::StaleReading);
        }
        match self.commit(state, next) {
            Ok(()) => Ok((outcome, reading)),
            Err(_) if injected(Fault::LostRaceDecides) => Ok((outcome, reading)),
            Err(_) => Err(Miss::LostRace),
        }
    }

    /// Takes by one reading of the clock, in up to `attempts` attempts.
    ///
    /// A commit with a later stamp happened during this call, because the clock was read first. The
    /// take is ordered right after that commit, with no time between them: so the clock need not be
    /// read again. (A reading that is older than an eviction meets a reserved word, which admits
    /// none.)
    #[inline]
    fn attempts<B: ByRefill>(
        self,
        attempts: usize,
        read: impl ReadClock,
        take: Take,
        by: B,
    ) -> Option<(TakeOutcome, Reading<B::Refill>)> {
        let raw = read.raw();
        let mut state = self.state();
        for _ in 0..attempts {
            let FreshReading { reading, near, begun, fits, may_lag } =
                read.admitted::<B::Refill>(state, raw, Order::ClockFirst);
            let reading = by.at(reading, begun)?;
            let (outcome, next) = if fits && state.within_skew(&reading, near) {
                state.take_ahead(&reading, take)
            } else if may_lag && state.is_just_after(&reading, near) {
                state.take_just_after(&reading, take)
            } else {
                return None;
            };
            state = match next {
                None if self.still_has(state) => return Some((outcome, reading)),
                None => self.state(),
                Some(next) => match self.commit(state, next) {
                    Ok(()) => return Some((outcome, reading)),
                    Err(found) => found,
                },
            };
        }
        None
    }

    /// Repeats `step` until its next state is committed, or it has none; returns result and
    /// reading.
    ///
    /// The clock is read after the word is loaded, and again after every lost race: `step` never
    /// sees a reading that is older than the state, unless it is one that [`State::accepts_stale`].
    #[inline(always)]
    fn update<T: Copy, O>(
        self,
        read: impl Fn(State) -> T,
        step: impl Fn(State, &T) -> (O, Option<State>),
    ) -> (O, T) {
        let stopped = injected(Fault::NoRereadAfterRace).then(|| read(State::FULL));
        let mut state = self.state();
        loop {
            let reading = stopped.unwrap_or_else(|| read(state));
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

#[derive(Debug)]
pub(crate) struct Bucket(AtomicU64);

impl Bucket {
    const_fn! {
        /// Creates a bucket that was never charged.
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

    /// Overwrites the state.
    ///
    /// Of a sealed bucket, only the thread that sealed it may do so: no other thread writes to it.
    pub(crate) fn set(&self, state: State) {
        self.0.store(state.word(), Ordering::Release);
    }
}

/// A bucket owned by one key (or one `TokenBucket`).
///
/// It cannot pass to another key without being sealed first.
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

    // A refusal needs no validation: the bucket belongs to this key.
    #[inline(always)]
    fn still_has(self, _: State) -> bool {
        true
    }
}

/// Commits by `swap`; under the fault, seals by a store.
#[inline(always)]
fn commit(word: &AtomicU64, next: State, swap: impl FnOnce() -> Result<u64, u64>) -> Result<u64, u64> {
    if injected(Fault::SealByStore) && next == State::SEALED {
        word.store(next.word(), Ordering::Release);
        return Ok(next.word());
    }
    swap()
}

/// Marks a branch as unlikely, so that the compiler keeps it a branch.
#[cold]
pub(crate) fn rarely() {}

/// Returns `read` as it is.
#[cfg(not(fault))]
#[inline(always)]
pub(crate) fn stop(_: Fault, read: impl ReadClock) -> impl ReadClock {
    read
}

/// Returns `read`; under the fault, with one reading for the whole call.
#[cfg(fault)]
pub(crate) fn stop(fault: Fault, read: impl ReadClock) -> impl ReadClock {
    Stopped { read, now: injected(fault).then(|| read.read(State::FULL)) }
}

#[cfg(fault)]
#[derive(Clone, Copy)]
struct Stopped<T> {
    read: T,
    now: Option<Reading>,
}

#[cfg(fault)]
impl<T: ReadClock> ReadClock for Stopped<T> {
    fn read(&self, state: State) -> Reading {
        self.now.unwrap_or_else(|| self.read.read(state))
    }

    fn raw(&self) -> u64 {
        self.read.raw()
    }

    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        self.read.admitted::<P>(state, raw, first)
    }
}
