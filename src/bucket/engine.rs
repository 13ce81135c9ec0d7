//! The engine: the clock, the terms in force and the start level, and the steps run with them on
//! one bucket.

use std::cell::Cell;

use crate::bucket::atomic::{BucketRef, FreshReading, Order, ReadClock};
use crate::bucket::line::bank::Mark;
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::Settle;
use crate::fault::{Fault, injected};
use crate::rule::counts::Counting;
use crate::sync::{AtomicU64, MODEL, Ordering, const_fn};
use crate::time::clock::{Clock, Moment};
use crate::word::by_refill::{BUCKETS, ByRefill, PLACES, WINDOWS, attempt_by};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::PlanTerms;
use crate::word::state::{Origin, Reading, Refill, State, TakeOutcome};
use crate::word::verb::{Call, Take, by_refill};

/// The source of a new reading each time.
#[derive(Clone, Copy)]
pub(crate) struct Now<'a>(pub(crate) &'a Engine);

impl ReadClock for Now<'_> {
    #[inline(always)]
    fn read(&self, _: State) -> Reading {
        self.0.read()
    }

    #[inline(always)]
    fn raw(&self) -> u64 {
        self.0.clock.raw()
    }

    #[inline(always)]
    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        self.0.source.admitted::<P>(state, raw, Some(first))
    }
}

/// The source of a new reading, which notes the tick from which the ticks of an attempt count.
#[derive(Clone, Copy)]
pub(crate) struct Dated<'a>(pub(crate) &'a Engine, pub(crate) &'a Cell<u64>);

impl ReadClock for Dated<'_> {
    fn read(&self, _: State) -> Reading {
        self.0.read()
    }

    #[inline(always)]
    fn raw(&self) -> u64 {
        self.0.clock.raw()
    }

    #[inline(always)]
    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        let fresh = self.0.source.admitted_from::<P, true>(state, raw, Some(first));
        self.1.set(fresh.begun);
        fresh
    }
}

/// The source of a new reading, or of an earlier one: for calls off the hot path.
#[derive(Clone, Copy)]
pub(crate) struct When<'a>(pub(crate) &'a Engine, pub(crate) Option<Moment>);

impl ReadClock for When<'_> {
    fn read(&self, state: State) -> Reading {
        match *self {
            When(engine, None) => Now(engine).read(state),
            When(engine, Some(now)) => At(engine, now).read(state),
        }
    }

    fn raw(&self) -> u64 {
        self.1.map_or_else(|| self.0.clock.raw(), |now| now.0)
    }

    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        self.0.source.admitted::<P>(state, raw, self.1.is_none().then_some(first))
    }
}

/// The source of an earlier reading, where it may decide; else of a new one.
#[derive(Clone, Copy)]
pub(crate) struct At<'a>(pub(crate) &'a Engine, pub(crate) Moment);

impl ReadClock for At<'_> {
    #[inline]
    fn read(&self, state: State) -> Reading {
        let At(engine, Moment(nanos)) = *self;
        let (earlier, now) = (engine.source.read(&engine.clock, Some(nanos)), engine.read());
        let terms = &earlier.refill;
        let age = now.tick.wrapping_sub(earlier.tick).cast_signed();
        // An older one may be of another turn of the stamp, and would count as a later one. If the
        // clock was set back, the stamp may be after both.
        let recent = (-terms.max_skew().cast_signed()..=(terms.mask / 4).cast_signed()).contains(&age)
            && state.accepts_stale(terms, now.tick);
        let recent = recent || injected(Fault::AnyAge);
        if recent && state.accepts_stale(terms, earlier.tick) { earlier } else { now }
    }

    #[inline(always)]
    fn raw(&self) -> u64 {
        self.1.0
    }

    #[inline(always)]
    fn admitted<P: Refill>(&self, state: State, raw: u64, _: Order) -> FreshReading {
        self.0.source.admitted::<P>(state, raw, None)
    }
}

/// Attempts before the loop is run instead.
const MAX_ATTEMPTS: usize = if MODEL { 1 } else { 16 };

/// A call that was decided by a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) outcome: TakeOutcome,
    /// The reading that counted.
    pub(crate) reading: Reading,
    /// Tokens that were out on lease beside the bucket's own.
    pub(crate) leased: u64,
}

impl Done {
    /// Returns a call that was granted without a bucket.
    pub(crate) fn nowhere(reading: Reading) -> Done {
        let full = State::FULL.at(&reading.refill, reading.tick).untouched();
        (TakeOutcome { origin: Origin::Nowhere, ..full }, reading).into()
    }
}

impl From<(TakeOutcome, Reading)> for Done {
    fn from((outcome, reading): (TakeOutcome, Reading)) -> Done {
        Done { outcome, reading, leased: 0 }
    }
}

/// The clock, the terms and the start level of one limiter, for all of its decisions.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) source: LiveTerms,
    pub(crate) clock: Clock,
    /// Most ticks in which a bucket fills under any plan; 0 if there is none.
    slowest_fill: AtomicU64,
    /// Tokens that a new bucket starts with, if not full.
    initial: Option<u64>,
    /// 1 while a thread looks at all words that count windows.
    sweeping: AtomicU64,
}

impl Engine {
    const_fn! {
        pub(crate) const fn new(source: LiveTerms, clock: Clock, initial: Option<u64>) -> Engine {
            let (slowest_fill, sweeping) = (AtomicU64::new(0), AtomicU64::new(0));
            Engine { source, clock, slowest_fill, initial, sweeping }
        }
    }
}

impl Engine {
    #[inline(always)]
    pub(crate) fn read(&self) -> Reading {
        self.source.read(&self.clock, None)
    }

    /// Returns whether the words count windows.
    pub(crate) fn counts_windows(&self) -> bool {
        !matches!(self.source.counts().counting, Counting::Bucket | Counting::Places)
    }

    /// Returns whether the words count places in use.
    pub(crate) fn counts_places(&self) -> bool {
        self.source.counts().counting == Counting::Places
    }

    /// Runs `sweep` if the words count windows, and all of them are to be looked at.
    ///
    /// `sweep` calls [`swept`](Engine::swept) with a reading of before it.
    pub(crate) fn sweep_if_due(&self, sweep: impl FnOnce()) {
        if self.counts_windows() && !injected(Fault::NeverSwept) {
            self.source.sweeps.run(self.read().tick, &self.sweeping, sweep);
        }
    }

    /// Returns whether the word of a window has a stamp that may have wrapped.
    pub(crate) fn is_long_ago(&self, state: State, reading: &Reading) -> bool {
        let age = self.source.sweeps.age(state.word(), reading.tick);
        age.is_some_and(|age| age >= reading.refill.backward_from)
    }

    /// Notes that all words were looked at after a reading.
    pub(crate) fn swept(&self, before: &Reading) {
        self.source.sweeps.swept(before.tick);
    }

    /// Records a plan under which an empty bucket needs `ticks` to fill.
    ///
    /// A caller charges under the plan only after this. An evictor loads the value after the word,
    /// so an evictor that sees the charge sees the plan.
    pub(crate) fn admit_plan(&self, ticks: u64) {
        self.slowest_fill.fetch_max(if injected(Fault::PlansUnknown) { 0 } else { ticks }, Ordering::AcqRel);
    }

    /// Returns the most ticks in which a bucket fills under any plan; 0 if there is none.
    pub(crate) fn slowest_fill(&self) -> u64 {
        self.slowest_fill.load(Ordering::Acquire)
    }

    /// Returns the state of a bucket that was never used. Reads the clock only if the bucket does
    /// not start full.
    pub(crate) fn initial(&self) -> State {
        if self.starts_full() { State::FULL } else { self.start(&self.read(), None) }
    }

    pub(crate) fn starts_full(&self) -> bool {
        self.initial.is_none()
    }

    /// Returns whether the look refused tokens that an unused bucket would earn after a first take.
    ///
    /// The caller checks that the bucket is unused, and then goes on to the take. Even a refused
    /// take starts the refill of a bucket that does not start full; a look never does.
    pub(crate) fn may_begin(&self, look: &Result<Granted, Denied>) -> bool {
        !self.starts_full() && matches!(look, Err(denied) if denied.reason() == Reason::Empty)
    }

    /// Returns `state`, or the first state of a bucket that was never charged.
    pub(crate) fn initialized(&self, state: State, reading: &Reading, plan: Option<&PlanTerms>) -> State {
        if state == State::FULL { self.start(reading, plan) } else { state }
    }

    /// Returns the first state of a bucket that was never charged.
    pub(crate) fn start(&self, reading: &Reading, plan: Option<&PlanTerms>) -> State {
        let Some(tokens) = self.initial else { return State::FULL };
        let terms = &reading.refill;
        let capacity = plan.map_or(terms.capacity, |plan| plan.capacity);
        let level = (terms.empty_level + terms.units(tokens)).min(capacity);
        State::pack(terms, level, reading.tick)
    }

    /// Attempts again a take that came to nothing.
    ///
    /// Returns `None` if the state admits no reading, or `MAX_ATTEMPTS` were lost.
    pub(crate) fn attempt_again<B: ByRefill>(
        &self,
        bucket: impl BucketRef,
        read: impl ReadClock,
        take: Take,
        by: B,
    ) -> Option<(TakeOutcome, Reading<B::Refill>)> {
        // A bucket that was idle for long admits only a reading that is taken after its word.
        let again = bucket.attempts(MAX_ATTEMPTS, read, take, by);
        again.or_else(|| bucket.attempt_by(Order::WordFirst, read, take, by).ok())
    }

    /// Runs a call on a bucket; returns `None` if the bucket is sealed.
    ///
    /// An uncharged bucket starts from `initial_state`; without one it is not charged, and the
    /// result is `None`.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        bucket: impl BucketRef,
        initial_state: Option<State>,
        read: impl ReadClock,
        call: Call<'_>,
    ) -> Option<Done> {
        let charge = |state: State, reading: &Reading| {
            let from = match initial_state {
                _ if state.is_level() => state,
                Some(start) if state == State::FULL => self.initialized(start, reading, call.plan),
                _ => return (None, None),
            };
            let (outcome, next) = call.apply(from, reading);
            // Even after a refusal the bucket has a level and a stamp from here on.
            let born = (from != state).then_some(from);
            (Some(outcome), next.or(born))
        };
        let (outcome, reading) = bucket.update(|state| read.read(state), charge);
        outcome.map(|outcome| (TakeOutcome { origin: bucket.origin(), ..outcome }, reading).into())
    }

    /// Returns whether the bucket was ever charged, and the outcome that a call would have on it.
    pub(crate) fn look(&self, bucket: impl BucketRef, read: impl ReadClock, call: Call<'_>) -> (bool, Done) {
        let step = |state: State, reading: &Reading| {
            let from = self.initialized(state, reading, call.plan);
            ((state.is_level(), call.apply(from, reading).0), None)
        };
        let ((charged, outcome), reading) = bucket.update(|state| read.read(state), step);
        (charged, (outcome, reading).into())
    }

    /// Returns whether a key may be under a plan.
    ///
    /// The caller has loaded the word before: a caller that charges under a plan does so after the
    /// plan was admitted.
    pub(crate) fn has_plans(&self) -> bool {
        self.slowest_fill() > 0 && !injected(Fault::PlansUnmarked)
    }

    /// Gives back the end of a line, if the word still stands at `mark`; returns the word after it.
    pub(crate) fn give_back(
        &self,
        bucket: impl BucketRef,
        plan: Option<&PlanTerms>,
        units: u64,
        mark: Mark,
    ) -> Option<Mark> {
        let step = |state: State, reading: &Reading| {
            by_refill!(*reading, plan, |by| mark.give_back(state, by, units, || self.has_plans()))
        };
        bucket.update(|_| self.read(), step).0
    }

    /// Settles a take on a bucket, and returns the tokens charged; `None` if the bucket is sealed.
    #[inline(always)]
    pub(crate) fn settle(
        &self,
        bucket: impl BucketRef,
        plan: Option<&PlanTerms>,
        settle: Settle<'_>,
    ) -> Option<u64> {
        let counts = self.source.counts();
        attempt_by!(
            BUCKETS | WINDOWS | PLACES,
            if plan.is_none() { Some(counts.counting) } else { None },
            counts,
            |by| {
                if let Some(charged) = self.settle_once(bucket, settle, by) {
                    return Some(charged);
                }
            },
            {}
        );
        let step = |state: State, reading: &Reading| {
            by_refill!(*reading, plan, |by| settle.apply(state, by, || self.has_plans()))
        };
        bucket.update(|_| self.read(), step).0
    }

    /// Settles a take in one attempt; returns `None` if nothing came of it.
    #[inline(always)]
    fn settle_once<B: ByRefill>(&self, bucket: impl BucketRef, settle: Settle<'_>, by: B) -> Option<u64> {
        let state = bucket.state();
        let (raw, first) = (self.clock.raw(), Some(Order::WordFirst));
        let FreshReading { reading, begun, fits, .. } =
            self.source.admitted_from::<B::Refill, true>(state, raw, first);
        if !fits {
            return None;
        }
        let by = by.at(reading, begun)?;
        // Receipts have whole ticks.
        let by = Reading { tick: by.tick.wrapping_add(begun), ..by };
        let (charged, next) = settle.apply(state, &by, || self.has_plans());
        let stands = match next {
            None => bucket.still_has(state),
            Some(next) => bucket.commit(state, next).is_ok(),
        };
        if stands { charged } else { None }
    }
}
