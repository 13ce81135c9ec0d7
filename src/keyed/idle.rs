//! The condition under which a bucket may be sealed, and the seal.

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::fault::{Fault, injected};
use crate::rule::counts::Counting;
use crate::word::places::PlaceTerms;
use crate::word::state::{Reading, State};
use crate::word::terms::EVICTION_GRACE;
use crate::word::window::{ANY, WindowTerms};

/// A check of idle buckets: a reading, the slowest plan, and the last change of quota.
#[derive(Clone, Copy)]
pub(crate) struct IdleCheck<'a> {
    engine: &'a Engine,
    pub(crate) reading: Reading,
    slowest_fill: u64,
    /// Nanoseconds left of the eviction grace after the last quota change. No charged bucket is
    /// sealed during it: the evictor's clock may be ahead, and its ticks may still be worth the old
    /// rate.
    grace_left: u64,
}

impl IdleCheck<'_> {
    /// Returns the check as of now, for states that were loaded before.
    pub(crate) fn now(engine: &Engine) -> IdleCheck<'_> {
        let slowest_fill = engine.slowest_fill();
        let reading = engine.read();
        let grace = engine.source.changed().map_or(0, |changed| changed.saturating_add(EVICTION_GRACE));
        IdleCheck { engine, reading, slowest_fill, grace_left: grace.saturating_sub(reading.nanos()) }
    }

    /// Flag in a wait: the wait also has to outlast `grace_left`.
    const GRACE: u64 = 1 << 63;

    /// The wait for a place that is in use: no time ends it.
    const NEVER: u64 = u64::MAX;

    /// Returns the wait until the bucket may be sealed, in ticks of a bucket or nanoseconds of a
    /// window; 0 if it may be sealed now. Smaller values are due earlier.
    pub(crate) fn wait_until_idle(&self, state: State) -> u64 {
        match self.counting() {
            Counting::Bucket => {
                let Reading { refill, tick, .. } = &self.reading;
                let ticks = state.evictable_in(refill, *tick, self.slowest_fill);
                if self.has_grace(state) { ticks | IdleCheck::GRACE } else { ticks }
            }
            Counting::Places if PlaceTerms::of(self.reading, None).refill.is_idle(state) => 0,
            Counting::Places => IdleCheck::NEVER,
            _ => self.wait_of_window(state),
        }
    }

    /// Returns whether the bucket may be sealed now.
    #[inline]
    pub(crate) fn is_idle(&self, state: State) -> bool {
        let Reading { refill, tick, .. } = &self.reading;
        match self.counting() {
            Counting::Bucket => state.is_evictable(refill, *tick, self.slowest_fill) & !self.has_grace(state),
            _ => self.wait_until_idle(state) == 0,
        }
    }

    #[inline]
    fn has_grace(&self, state: State) -> bool {
        (self.grace_left > 0) & state.is_level() && !injected(Fault::NoGraceAfterChange)
    }

    fn counting(&self) -> Counting {
        self.reading.refill.widths.counts.counting
    }

    /// Returns the wait of a window. A change of limit does not matter: nothing is earned.
    #[inline(never)]
    fn wait_of_window(&self, state: State) -> u64 {
        let terms = WindowTerms::<ANY>::of(self.reading, None).refill;
        match state.is_level() {
            true if self.engine.is_long_ago(state, &self.reading) => 0,
            true => terms.idle_from(state, &self.reading).saturating_sub(self.reading.nanos()),
            false => 0,
        }
    }

    /// Returns the clock reading at the end of a wait.
    pub(crate) fn due_at(&self, wait: u64) -> u64 {
        let now = self.reading.nanos();
        if self.counting() != Counting::Bucket {
            return now.saturating_add(wait);
        }
        let nanos = self.reading.refill.ticks.nanos_until(now, wait & !IdleCheck::GRACE);
        now.saturating_add(if wait & IdleCheck::GRACE == 0 { nanos } else { nanos.max(self.grace_left) })
    }
}

/// Seals a bucket that has been full for the eviction grace, or has no place in use. Otherwise
/// returns the clock reading at which it may be sealed.
///
/// Returns the state that this call sealed; `None` if the bucket was sealed already.
pub(crate) fn seal_if_idle(engine: &Engine, bucket: impl BucketRef) -> Result<Option<State>, u64> {
    let step = |state: State, idle: &IdleCheck<'_>| {
        if state.is_claimed() {
            return (Ok(None), None);
        }
        match idle.wait_until_idle(state) {
            0 => (Ok(Some(state)), (!injected(Fault::NoSeal)).then_some(State::SEALED)),
            wait => (Err(idle.due_at(wait)), None),
        }
    };
    let early = injected(Fault::PlansReadEarly).then(|| engine.slowest_fill());
    let read = |_| {
        let idle = IdleCheck::now(engine);
        IdleCheck { slowest_fill: early.unwrap_or(idle.slowest_fill), ..idle }
    };
    bucket.update(read, step).0
}

/// Returns the word of a table slot whose key was evicted in a state: a tombstone where words count
/// places, else that of an empty slot.
pub(crate) fn vacated(engine: &Engine, sealed: State) -> State {
    match engine.counts_places() {
        true => PlaceTerms::of(engine.read(), None).refill.vacated(sealed),
        false => State::FULL,
    }
}

/// Returns whether a key is forgotten only if it says the same as a new one: a key with a place in
/// use stays, so that the receipt of a place always finds its word.
pub(crate) fn forgets_only_idle(engine: &Engine) -> bool {
    engine.counts_places()
}

/// Returns whether a removed key of a table keeps its slot, with no token used, until its window is
/// over.
///
/// Within the tick of a window, which may be a day, the next key of the slot could have the word of
/// the key before it, and be charged for a thread that is about to commit on that. A vacated slot
/// would so be of no use until the window is over.
pub(crate) fn forgets_in_place(engine: &Engine) -> bool {
    engine.counts_windows() && !injected(Fault::RemovedAtOnce)
}

/// Forgets the tokens of a window, whose key keeps the bucket. Returns false if it was sealed
/// already.
///
/// `count` counts the removal, as in [`seal`].
pub(crate) fn forget(engine: &Engine, bucket: impl BucketRef, count: impl Fn()) -> bool {
    let read = |_| {
        count();
        engine.read()
    };
    let step = |state: State, reading: &Reading| {
        let forgotten = || WindowTerms::<ANY>::of(*reading, None).refill.forgotten(state, reading.tick);
        (state.is_level(), state.is_level().then(forgotten))
    };
    bucket.update(read, step).0
}

/// Gives a window whose tokens are all forgotten another stamp, before its own one wraps.
pub(crate) fn restamp(engine: &Engine, bucket: impl BucketRef) {
    let step = |state: State, idle: &IdleCheck<'_>| {
        // The stamp is further behind than jitter, in whole ticks if not modulo the range.
        let forgotten = || State::pack(&idle.reading.refill, 0, idle.reading.tick);
        ((), (state.is_level() && idle.is_idle(state)).then(forgotten))
    };
    bucket.update(|_| IdleCheck::now(engine), step);
}

/// Seals a bucket with any level. Returns false if it was sealed already.
///
/// `count` counts the removal: after each load of the word, and before the seal.
pub(crate) fn seal(bucket: impl BucketRef, count: impl Fn()) -> bool {
    let live = |state| state != State::SEALED;
    if injected(Fault::RemovalCountedEarly) {
        count();
    }
    let read = |_| {
        if !injected(Fault::RemovalCountedEarly) && !injected(Fault::RemovalCountedLate) {
            count();
        }
    };
    let sealed = bucket.update(read, |state, ()| (live(state), live(state).then_some(State::SEALED))).0;
    if injected(Fault::RemovalCountedLate) {
        count();
    }
    sealed
}
