//! The protocol of one key: who may charge which bucket, while entries come and go.
//!
//! What it keeps true, whatever the interleaving:
//!
//! * a key has one live bucket. Evicting is sealing the word of a bucket that has been full for the
//!   margin, then removing the entry; a sealed word is never charged again. Whoever still holds the
//!   reference meets the seal, helps to remove the entry, and looks the key up again;
//! * a bucket enters the map uncharged (`FULL`), and its first charge starts from what the key's overflow
//!   bucket holds, which is full unless the limiter ran out of room. So a key that was limited outside of the
//!   map stays limited inside, and evicting an uncharged bucket changes nothing;
//! * a grant on the overflow bucket counts only if the key had no entry from before until after it.
//!
//! # Orderings
//!
//! Entering the map and charging the overflow bucket race: one thread inserts an entry, then reads the
//! overflow bucket; another charges the overflow bucket, then looks for an entry. A `SeqCst` fence between
//! the two steps of either makes at least one of them see the other. (Partner fences: in `first_charge` and
//! `acquire_overflow`; checked by `a_key_that_enters_the_map_brings_its_debts` in `src/tests/models/`.)
//! The word itself needs no more than `bucket/atomic.rs` gives.

use crate::bucket::atomic::{Bucket, BucketRef, FreshReading, Miss, Order, Read, ReadOnce, stop};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::reservation::Receipt;
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering, const_fn, fence};
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::{Plan, Planned};
use crate::word::state::{Outcome, State};
use crate::word::terms::{EVICTION_GRACE, Reading, Refill};
use crate::word::verb::{Give, Take};

/// A new reading each time.
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

/// A reading that was taken before, where it may decide; else a new one.
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

/// A reading for a key that is under a plan.
#[derive(Clone, Copy)]
pub(crate) struct Under<T>(pub(crate) T, pub(crate) Plan);

impl<T: Read<Reading>> Read<Reading<Planned>> for Under<T> {
    fn read(&self, state: State) -> Reading<Planned> {
        self.0.read(state).under(self.1)
    }
}

/// The place of one key in a store: papaya's map, a fixed table, or a stand-in that a model checker can follow.
///
/// It is passed by value, as all that is hot here: what a cold function has a reference to must be kept in memory.
pub(crate) trait Entry<'a>: Copy {
    type BucketRef: BucketRef;
    /// The key's bucket, if it has an entry.
    fn get(self) -> Option<Self::BucketRef>;
    /// Whether it has an entry, or is just getting one.
    fn is_present(self) -> bool {
        self.get().is_some()
    }
    /// Makes an entry, and runs the step on it; if there is no room, decides without. Nothing if there may be an entry now.
    fn insert<P: Refill>(self, read: impl Read<Reading<P>>, step: Take) -> Option<Done<P>>;
    /// Whether a bucket of the store is spread over cores, and so stays.
    fn is_spread(self, _: &Bucket) -> bool {
        false
    }
    /// Lets who is about to make an entry for it go on.
    fn back_off(self) {}
    /// Removes the entry if its bucket is sealed, never by key alone.
    fn remove_sealed(self);
    /// The bucket it shares with others while it has no entry.
    fn overflow_bucket(self) -> &'a Bucket;
}

/// Whether an entry may be removed: if its bucket is sealed, never by key alone.
pub(crate) fn is_removable(bucket: impl BucketRef) -> bool {
    bucket.state() == State::SEALED || injected(Fault::NoSeal) || injected(Fault::RemoveByKey)
}

/// Somebody else's insertion or eviction sends a call back to the start. So does a clock on which seconds pass between two
/// readings of a call, for ever: then there is no room.
const MOST_ROUNDS: usize = 1_000;

/// Attempts before the whole way is gone.
const MOST_ATTEMPTS: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 16 };

/// An outcome and the reading that counted, or a refusal without a bucket.
pub(crate) type Done<P> = Result<(Outcome, Reading<P>), Denied>;

/// What decides when a bucket may be sealed: a reading, the slowest plan, and the last change of quota.
#[derive(Clone, Copy)]
pub(crate) struct IdleCheck {
    reading: Reading,
    slowest_fill: u64,
    /// None that was charged is sealed within the margin after a change of quota: the evictor's clock may be ahead, and what its
    /// ticks were worth is another matter. These are the nanoseconds that are left of it.
    grace_left: u64,
}

impl IdleCheck {
    /// In a wait: it is over no earlier than the margin is.
    const GRACE: u64 = 1 << 63;

    /// How long a bucket is to wait before it may be sealed: 0 if it may be now, less if it may be earlier.
    pub(crate) fn ticks_until_idle(&self, state: State) -> u64 {
        let ticks = state.evictable_in(&self.reading.refill, self.reading.tick, self.slowest_fill);
        let calm = self.grace_left == 0 || !state.is_level() || injected(Fault::NotCalm);
        if calm { ticks } else { ticks | IdleCheck::GRACE }
    }

    /// The clock reading when a wait is over.
    pub(crate) fn due_at(&self, wait: u64) -> u64 {
        let now = self.reading.nanos();
        let nanos = self.reading.refill.ticks.nanos_until(now, wait & !IdleCheck::GRACE);
        now.saturating_add(if wait & IdleCheck::GRACE == 0 { nanos } else { nanos.max(self.grace_left) })
    }
}

/// What all decisions of one limiter are made with.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) source: LiveTerms,
    pub(crate) clock: Clock,
    /// The most ticks in which a bucket fills under any plan; 0 if there is none.
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

    /// There is a plan under which a bucket fills in so many ticks.
    ///
    /// Whoever charges under it does so after this; an evictor loads it after the word, and so sees it if it sees
    /// the charge.
    pub(crate) fn admit_plan(&self, ticks: u64) {
        self.slowest_fill.fetch_max(if injected(Fault::PlansUnknown) { 0 } else { ticks }, Ordering::AcqRel);
    }

    /// The state of a bucket that nobody has used. The clock is read only if that depends on it.
    pub(crate) fn initial(&self) -> State {
        if self.starts_full() { State::FULL } else { self.start(&self.read()) }
    }

    pub(crate) fn starts_full(&self) -> bool {
        self.initial.is_none()
    }

    /// Whether a look at a bucket that was never used refuses a take that would be granted later.
    ///
    /// A bucket that does not start full earns from its first take on, so looks alone would refuse
    /// it for ever.
    pub(crate) fn may_begin(&self, look: &Result<Granted, Denied>) -> bool {
        !self.starts_full() && matches!(look, Err(denied) if denied.reason() == Reason::Empty)
    }

    /// The state of a bucket that may never have been charged.
    pub(crate) fn initialized<P: Refill>(&self, state: State, reading: &Reading<P>) -> State {
        if state == State::FULL { self.start(reading) } else { state }
    }

    /// What a bucket that was never charged starts from.
    pub(crate) fn start<P: Refill>(&self, reading: &Reading<P>) -> State {
        let Some(tokens) = self.initial else { return State::FULL };
        let terms = reading.refill.terms();
        let level = (terms.empty_level + terms.units(tokens)).min(reading.refill.capacity());
        State::pack(terms, level, reading.tick)
    }

    /// Attempts again what came to nothing: the word first if the reading was unfit, the clock first if a race was lost.
    /// Nothing if it is unfit again, or lost too often.
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

    /// Runs a step on the bucket at `entry`, and tells the reading that counted.
    #[inline(always)]
    pub(crate) fn acquire<'a, P: Refill>(
        &self,
        entry: impl Entry<'a>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> Done<P> {
        let early = stop(Fault::ClockBeforeLookUp, read);
        let found = entry.get();
        let read = stop(Fault::NoRereadAfterSeal, early);
        if let Some(bucket) = found
            && let Some(done) = self.charge(bucket, None, read, step)
        {
            return Ok(done);
        }
        self.acquire_anyhow(entry, read, step)
    }

    #[cold]
    #[inline(never)]
    fn acquire_anyhow<'a, P: Refill>(
        &self,
        entry: impl Entry<'a>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> Done<P> {
        for _ in 0..MOST_ROUNDS {
            let Some(bucket) = entry.get() else {
                match entry.insert(read, step) {
                    Some(done) => return done,
                    None => entry.back_off(),
                }
                continue;
            };
            if let Some(done) = self.first_charge(bucket, entry.overflow_bucket(), read, step) {
                return Ok(done);
            }
            entry.remove_sealed();
        }
        let now = self.clock.nanos();
        Err(Denied::full(step.tokens(), now, Some(now)))
    }

    #[inline(always)]
    fn charge<P: Refill>(
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
            // Refused at birth: the bucket has a level and a stamp from here on all the same.
            let born = (from != state).then_some(from);
            (Some(outcome), next.or(born))
        };
        let (outcome, reading) = bucket.update(read, charge);
        outcome.map(|outcome| (outcome, reading))
    }

    /// Runs a step on a bucket that may be uncharged. Nothing if it is sealed.
    #[cold]
    pub(crate) fn first_charge<P: Refill>(
        &self,
        bucket: impl BucketRef,
        overflow: &Bucket,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> Option<(Outcome, Reading<P>)> {
        fence(Ordering::SeqCst);
        let initial_state = if injected(Fault::DebtsForgotten) { State::FULL } else { overflow.state() };
        self.charge(bucket, Some(initial_state), read, step)
    }

    /// Runs a step on a bucket that is in no map, and so never sealed.
    pub(crate) fn run_shared<P: Refill>(
        &self,
        bucket: impl BucketRef,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> (Outcome, Reading<P>) {
        bucket.update(read, |state, reading| {
            let from = self.initialized(state, reading);
            let (outcome, next) = step.apply(from, reading);
            // Refused at first: it has a level and a stamp from here on all the same.
            (outcome, next.or((from != state).then_some(from)))
        })
    }

    /// Runs a step on the overflow bucket, for a key that has no entry. Nothing if it got one.
    ///
    /// The decision is void, and tokens it took are lost to those who share the bucket, if the key has an
    /// entry after it, or might have had one in between: one that came and went was there for the margin.
    #[cold]
    pub(crate) fn acquire_overflow<'a, P: Refill>(
        &self,
        entry: impl Entry<'a>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> Option<(Outcome, Reading<P>)> {
        let before = self.clock.nanos();
        if entry.is_present() {
            return None;
        }
        let done = self.run_shared(entry.overflow_bucket(), read, step);
        fence(Ordering::SeqCst);
        let absent = !entry.is_present() && self.clock.nanos().saturating_sub(before) < EVICTION_GRACE;
        (absent || injected(Fault::NoVoidGrants)).then_some(done)
    }

    /// Takes up to `n` tokens, on credit if need be, and tells how many. Nothing of a bucket that is sealed.
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

    /// Whether a key may be under a plan. To be asked after its word was loaded: a caller that charges
    /// under a plan does so after the plan was admitted.
    pub(crate) fn has_plans(&self) -> bool {
        self.slowest_fill.load(Ordering::Acquire) > 0 && !injected(Fault::PlansUnmarked)
    }

    /// Gives back `n` tokens, as many as fit. False if the bucket is sealed, as in the two below.
    pub(crate) fn refund(&self, bucket: impl BucketRef, n: u64, plan: Option<Plan>) -> bool {
        self.settle(bucket, plan, |_| Give::Refund(n))
    }

    /// Gives back the tokens of a receipt, if none were taken since.
    pub(crate) fn give_back(&self, bucket: impl BucketRef, receipt: &Receipt) -> bool {
        self.settle(bucket, receipt.plan, |plans| receipt.giving_back(plans))
    }

    /// Gives back what the bucket would still have, had it not been taken.
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

    /// What a step would come to on the key's bucket, without taking it. Without an entry, that is its overflow bucket.
    pub(crate) fn peek<'a, P: Refill>(
        &self,
        entry: impl Entry<'a>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> (Outcome, Reading<P>) {
        match entry.get().map(|bucket| self.look(bucket, read, step)) {
            Some(((true, outcome), reading)) => (outcome, reading),
            _ => {
                let ((_, outcome), reading) = self.look(entry.overflow_bucket(), read, step);
                (outcome, reading)
            }
        }
    }

    /// Whether a bucket was ever charged, and what a step would come to on it.
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

    /// What decides when a bucket may be sealed, as of now. For states that were loaded before.
    pub(crate) fn idle_check(&self) -> IdleCheck {
        let slowest_fill = self.slowest_fill.load(Ordering::Acquire);
        let reading = self.read();
        let calm = self.source.changed().map_or(0, |changed| changed.saturating_add(EVICTION_GRACE));
        IdleCheck { reading, slowest_fill, grace_left: calm.saturating_sub(reading.nanos()) }
    }

    /// Seals a bucket that has been full for the margin; else tells the clock reading at which it may be.
    ///
    /// True if this call sealed it, false if it was sealed already.
    pub(crate) fn seal_if_idle(&self, bucket: impl BucketRef) -> Result<bool, u64> {
        let step = |state: State, idle: &IdleCheck| {
            if state.is_claimed() {
                return (Ok(false), None);
            }
            match idle.ticks_until_idle(state) {
                0 => (Ok(true), (!injected(Fault::NoSeal)).then_some(State::SEALED)),
                wait => (Err(idle.due_at(wait)), None),
            }
        };
        bucket.update(|_| self.idle_check(), step).0
    }

    /// Seals a bucket whatever it holds. False if it was sealed already.
    ///
    /// `count` counts the removal: after each load of the word that is to be sealed, and before the seal.
    pub(crate) fn seal(&self, bucket: impl BucketRef, count: impl Fn()) -> bool {
        let live = |state| state != State::SEALED;
        let (early, late) = (injected(Fault::RemovalCountedEarly), injected(Fault::RemovalCountedLate));
        if early {
            count();
        }
        let read = |_| {
            if !early && !late {
                count();
            }
        };
        let sealed = bucket.update(read, |state, ()| (live(state), live(state).then_some(State::SEALED))).0;
        if late {
            count();
        }
        sealed
    }
}
