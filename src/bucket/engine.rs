//! The engine: the clock, the terms in force and the start level, and the steps run with them on
//! one bucket.

use crate::bucket::atomic::{BucketRef, FreshReading, Miss, Order, Read, ReadOnce};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::reservation::Receipt;
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering, const_fn};
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::{Plan, Planned};
use crate::word::state::{Outcome, State};
use crate::word::terms::{Reading, Refill};
use crate::word::verb::{Give, Take};

/// The source of a new reading each time.
#[derive(Clone, Copy)]
pub(crate) struct Now<T>(pub(crate) T);

impl Read<Reading> for Now<&Engine> {
    #[inline(always)]
    fn read(&self, _: State) -> Reading {
        self.0.read()
    }
}

impl ReadOnce for Now<&Engine> {
    #[inline(always)]
    fn count(&self) -> u64 {
        self.0.clock.raw()
    }

    #[inline(always)]
    fn admitted(&self, state: State, count: u64) -> FreshReading {
        self.0.source.admitted(state, count, true)
    }
}

/// The source of an earlier reading, where it may decide; else of a new one.
#[derive(Clone, Copy)]
pub(crate) struct At<'a>(pub(crate) &'a Engine, pub(crate) Moment);

impl Read<Reading> for At<'_> {
    #[inline]
    fn read(&self, state: State) -> Reading {
        let At(engine, Moment(nanos)) = *self;
        let reading = engine.source.read(&engine.clock, Some(nanos));
        if state.accepts_stale(&reading.refill, reading.tick) { reading } else { engine.read() }
    }
}

impl ReadOnce for At<'_> {
    #[inline(always)]
    fn count(&self) -> u64 {
        self.1.0
    }

    #[inline(always)]
    fn admitted(&self, state: State, count: u64) -> FreshReading {
        self.0.source.admitted(state, count, false)
    }
}

/// The source of a reading for a key that is under a plan.
#[derive(Clone, Copy)]
pub(crate) struct Under<T>(pub(crate) T, pub(crate) Plan);

impl<T: Read<Reading>> Read<Reading<Planned>> for Under<T> {
    fn read(&self, state: State) -> Reading<Planned> {
        self.0.read(state).under(self.1)
    }
}

/// Attempts before the loop is run instead.
const MOST_ATTEMPTS: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 16 };

/// An outcome and the reading that counted, or a refusal without a bucket.
pub(crate) type Done<P> = Result<(Outcome, Reading<P>), Denied>;

/// The clock, the terms and the start level of one limiter, for all of its decisions.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) source: LiveTerms,
    pub(crate) clock: Clock,
    /// Most ticks in which a bucket fills under any plan; 0 if there is none.
    slowest_fill: AtomicU64,
    /// Tokens that a new bucket starts with, if not full.
    initial: Option<u64>,
}

impl Engine {
    const_fn! {
        pub(crate) const fn new(source: LiveTerms, clock: Clock, initial: Option<u64>) -> Engine {
            Engine { source, clock, slowest_fill: AtomicU64::new(0), initial }
        }
    }
}

impl Engine {
    #[inline(always)]
    pub(crate) fn read(&self) -> Reading {
        self.source.read(&self.clock, None)
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

    /// Returns the state of a bucket that was never used. Reads the clock only if the state needs
    /// it.
    pub(crate) fn initial(&self) -> State {
        if self.starts_full() { State::FULL } else { self.start(&self.read()) }
    }

    pub(crate) fn starts_full(&self) -> bool {
        self.initial.is_none()
    }

    /// Returns whether a look at an unused bucket refuses a take that would be granted later.
    ///
    /// A bucket that does not start full earns from its first take on, so looks alone would refuse
    /// it for ever.
    pub(crate) fn may_begin(&self, look: &Result<Granted, Denied>) -> bool {
        !self.starts_full() && matches!(look, Err(denied) if denied.reason() == Reason::Empty)
    }

    /// Returns `state`, or the first state of a bucket that was never charged.
    pub(crate) fn initialized<P: Refill>(&self, state: State, reading: &Reading<P>) -> State {
        if state == State::FULL { self.start(reading) } else { state }
    }

    /// Returns the first state of a bucket that was never charged.
    pub(crate) fn start<P: Refill>(&self, reading: &Reading<P>) -> State {
        let Some(tokens) = self.initial else { return State::FULL };
        let terms = reading.refill.terms();
        let level = (terms.empty_level + terms.units(tokens)).min(reading.refill.capacity());
        State::pack(terms, level, reading.tick)
    }

    /// Attempts again a take that came to nothing.
    ///
    /// The word is loaded first if the reading was unfit, the clock first if a race was lost.
    /// Returns `None` if the reading is unfit again, or `MOST_ATTEMPTS` were lost.
    pub(crate) fn attempt_again(
        &self,
        bucket: impl BucketRef,
        mut missed: Miss,
        read: impl ReadOnce,
        n: u64,
    ) -> Option<(Outcome, Reading)> {
        for _ in 0..MOST_ATTEMPTS {
            let first = if missed == Miss::LostRace { Order::ClockFirst } else { Order::WordFirst };
            match bucket.attempt(first, read, n) {
                Ok(done) => return Some(done),
                Err(Miss::StaleReading) if first == Order::WordFirst => break,
                Err(again) => missed = again,
            }
        }
        None
    }

    /// Runs a step on a bucket outside of a map.
    pub(crate) fn run<P: Refill>(
        &self,
        bucket: impl BucketRef,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> (Outcome, Reading<P>) {
        bucket.update(read, |state, reading| step.apply(state, reading))
    }

    /// Runs a step on a bucket of a store, unless it is sealed.
    ///
    /// An uncharged bucket starts from `initial_state`.
    #[inline(always)]
    pub(crate) fn charge<P: Refill>(
        &self,
        bucket: impl BucketRef,
        initial_state: Option<State>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> Option<(Outcome, Reading<P>)> {
        let charge = |state: State, reading: &Reading<P>| {
            let from = match initial_state {
                _ if state.is_level() => state,
                Some(State::FULL) if state == State::FULL => self.start(reading),
                Some(start) if state == State::FULL => start,
                _ => return (None, None),
            };
            let (outcome, next) = step.apply(from, reading);
            // Even after a refusal the bucket has a level and a stamp from here on.
            let born = (from != state).then_some(from);
            (Some(outcome), next.or(born))
        };
        let (outcome, reading) = bucket.update(read, charge);
        outcome.map(|outcome| (outcome, reading))
    }

    /// Runs a step on a bucket that is in no map, and so never sealed.
    pub(crate) fn run_overflow<P: Refill>(
        &self,
        bucket: impl BucketRef,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> (Outcome, Reading<P>) {
        bucket.update(read, |state, reading| {
            let from = self.initialized(state, reading);
            let (outcome, next) = step.apply(from, reading);
            // Even after a refusal the bucket has a level and a stamp from here on.
            (outcome, next.or((from != state).then_some(from)))
        })
    }

    /// Takes up to `n` tokens, on credit if need be, and returns the number taken.
    ///
    /// Returns `None` if the bucket is sealed.
    pub(crate) fn charge_later(&self, bucket: impl BucketRef, n: u64, plan: Option<Plan>) -> Option<u64> {
        fn step<P: Refill>(n: u64) -> impl Fn(State, &Reading<P>) -> (Option<u64>, Option<State>) {
            move |state, reading| {
                if state == State::SEALED {
                    return (None, None);
                }
                let (outcome, next) = Take::OnCredit(n).apply(state, reading);
                (Some(reading.refill.terms().tokens(outcome.taken)), next)
            }
        }
        match plan {
            None => bucket.update(Now(self), step(n)).0,
            Some(plan) => bucket.update(Under(Now(self), plan), step(n)).0,
        }
    }

    /// Returns whether a key may be under a plan.
    ///
    /// The caller has loaded the word before: a caller that charges under a plan does so after the
    /// plan was admitted.
    pub(crate) fn has_plans(&self) -> bool {
        self.slowest_fill() > 0 && !injected(Fault::PlansUnmarked)
    }

    /// Gives back the part of `n` tokens that fits. Returns false if the bucket is sealed.
    pub(crate) fn refund(&self, bucket: impl BucketRef, n: u64, plan: Option<Plan>) -> bool {
        self.settle(bucket, plan, |_| Give::Refund(n))
    }

    /// Gives back the tokens of a receipt, if none were taken since. Returns false if sealed.
    pub(crate) fn give_back(&self, bucket: impl BucketRef, receipt: &Receipt) -> bool {
        self.settle(bucket, receipt.plan, |plans| receipt.giving_back(plans))
    }

    /// Gives back the tokens that the bucket would still have without the take.
    ///
    /// Returns false if the bucket is sealed.
    pub(crate) fn undo(&self, bucket: impl BucketRef, receipt: &Receipt) -> bool {
        self.settle(bucket, receipt.plan, |plans| receipt.undoing(plans, 0))
    }

    fn settle(&self, bucket: impl BucketRef, plan: Option<Plan>, step: impl Fn(bool) -> Give) -> bool {
        fn run<P: Refill>(step: Give, state: State, reading: &Reading<P>) -> (bool, Option<State>) {
            (state != State::SEALED, step.apply(&reading.refill, state, reading.tick))
        }
        let step = || step(self.has_plans());
        match plan {
            None => bucket.update(Now(self), |state, reading| run(step(), state, reading)).0,
            Some(plan) => {
                bucket.update(Under(Now(self), plan), |state, reading| run(step(), state, reading)).0
            }
        }
    }

    /// Returns whether the bucket was ever charged, and the outcome that a step would have on it.
    pub(crate) fn look<P: Refill>(
        &self,
        bucket: impl BucketRef,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> ((bool, Outcome), Reading<P>) {
        let step = |state: State, reading: &_| {
            let from = if state == State::FULL { self.start(reading) } else { state };
            ((state.is_level(), step.apply(from, reading).0), None)
        };
        bucket.update(read, step)
    }
}
