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

use crate::bucket::atomic::{Advance, Bucket, First, Missed, Once, Read, ReadOnce, Word, stop};
use crate::bucket::live_terms::{Regimes, Source};
use crate::bucket::reservation::Receipt;
use crate::fault::{Control, broken};
use crate::sync::{AtomicU64, Ordering, const_fn, fence};
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::{Plan, Planned};
use crate::word::state::{Outcome, State};
use crate::word::terms::{MARGIN_NANOS, Pace, Reading};
use crate::word::verb::{Give, Settle, Step, charge_up_to};

/// A step on whatever state there is.
struct Run<S>(S);

impl<P: Pace, S: Step> Advance<Reading<P>> for Run<S> {
    type Out = Outcome;

    #[inline(always)]
    fn advance(&self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        self.0.run(state, reading)
    }
}

/// A step on a bucket of a map, unless it is sealed. One that was never charged starts as `unborn` says, if it does.
struct Charge<'a, R, S> {
    rules: &'a Rules<R>,
    unborn: Option<State>,
    step: S,
}

impl<P: Pace, R: Source, S: Step> Advance<Reading<P>> for Charge<'_, R, S> {
    type Out = Option<Outcome>;

    #[inline(always)]
    fn advance(&self, state: State, reading: &Reading<P>) -> (Self::Out, Option<State>) {
        let from = match self.unborn {
            _ if state.is_level() => state,
            Some(State::FULL) if state == State::FULL => self.rules.start(reading),
            Some(start) if state == State::FULL => start,
            _ => return (None, None),
        };
        let (outcome, next) = self.step.run(from, reading);
        // Refused at birth: the bucket has a level and a stamp from here on all the same.
        let born = (from != state).then_some(from);
        (Some(outcome), next.or(born))
    }
}

/// A new reading each time.
#[derive(Clone, Copy)]
pub(crate) struct Now<T>(pub(crate) T);

impl<R: Source> Read<Reading> for Now<&Rules<R>> {
    #[inline(always)]
    fn read(&self, _: State) -> Reading {
        self.0.read()
    }
}

impl<R: Source> ReadOnce for Now<&Rules<R>> {
    #[inline(always)]
    fn count(&self) -> u64 {
        self.0.clock.count()
    }

    #[inline(always)]
    fn admitted(&self, state: State, count: u64) -> Once {
        self.0.source.admitted(state, count, true)
    }
}

/// A reading that was taken before, where it may decide; else a new one.
#[derive(Clone, Copy)]
pub(crate) struct At<'a>(pub(crate) &'a Rules, pub(crate) Moment);

impl Read<Reading> for At<'_> {
    #[inline]
    fn read(&self, state: State) -> Reading {
        let At(rules, Moment(nanos)) = *self;
        let reading = rules.source.read(&rules.clock, Some(nanos));
        if state.admits_reading(&reading.pace, reading.tick) { reading } else { rules.read() }
    }
}

impl ReadOnce for At<'_> {
    #[inline(always)]
    fn count(&self) -> u64 {
        self.1.0
    }

    #[inline(always)]
    fn admitted(&self, state: State, count: u64) -> Once {
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
pub(crate) trait Place<'a>: Copy {
    type Word: Word;
    /// The key's bucket, if it has an entry.
    fn search(self) -> Option<Self::Word>;
    /// Whether it has an entry, or is just getting one.
    fn is_entered(self) -> bool {
        self.search().is_some()
    }
    /// Makes an entry, and runs the step on it; if there is no room, decides without. Nothing if there may be an entry now.
    fn admit<P: Pace>(self, read: impl Read<Reading<P>>, step: impl Step) -> Option<Done<P>>;
    /// Whether a bucket of the store is spread over cores, and so stays.
    fn is_spread(self, _: &Bucket) -> bool {
        false
    }
    /// Lets who is about to make an entry for it go on.
    fn pause(self) {}
    /// Removes the entry if its bucket is sealed, never by key alone.
    fn bury(self);
    /// The bucket it shares with others while it has no entry.
    fn overflow(self) -> &'a Bucket;
}

/// Whether an entry may be removed: if its bucket is sealed, never by key alone.
pub(crate) fn is_removable(bucket: impl Word) -> bool {
    bucket.state() == State::SEALED || broken(Control::NoSeal) || broken(Control::RemoveByKey)
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
pub(crate) struct Leave {
    reading: Reading,
    longest: u64,
    /// None that was charged is sealed within the margin after a change of quota: the evictor's clock may be ahead, and what its
    /// ticks were worth is another matter. These are the nanoseconds that are left of it.
    calm_in: u64,
}

impl Leave {
    /// In a wait: it is over no earlier than the margin is.
    const CALM: u64 = 1 << 63;

    /// How long a bucket is to wait before it may be sealed: 0 if it may be now, less if it may be earlier.
    pub(crate) fn wait(&self, state: State) -> u64 {
        let ticks = state.evictable_in(&self.reading.pace, self.reading.tick, self.longest);
        let calm = self.calm_in == 0 || !state.is_level() || broken(Control::NotCalm);
        if calm { ticks } else { ticks | Leave::CALM }
    }

    /// The clock reading when a wait is over.
    pub(crate) fn time(&self, wait: u64) -> u64 {
        let now = self.reading.nanos();
        let nanos = self.reading.pace.ticks.nanos_until(now, wait & !Leave::CALM);
        now.saturating_add(if wait & Leave::CALM == 0 { nanos } else { nanos.max(self.calm_in) })
    }
}

/// What all decisions of one limiter are made with.
#[derive(Debug)]
pub(crate) struct Rules<R = Regimes> {
    pub(crate) source: R,
    pub(crate) clock: Clock,
    /// The most ticks in which a bucket fills under any plan; 0 if there is none.
    longest: AtomicU64,
    /// Tokens that a new bucket starts with, if not full.
    initial: Option<u64>,
}

impl<R> Rules<R> {
    const_fn! {
        pub(crate) const fn new(source: R, clock: Clock, initial: Option<u64>) -> Rules<R> {
            Rules { source, clock, longest: AtomicU64::new(0), initial }
        }
    }
}

impl<R: Source> Rules<R> {
    #[inline(always)]
    pub(crate) fn read(&self) -> Reading {
        self.source.read(&self.clock, None)
    }

    /// There is a plan under which a bucket fills in so many ticks.
    ///
    /// Whoever charges under it does so after this; an evictor loads it after the word, and so sees it if it sees
    /// the charge.
    pub(crate) fn admit_plan(&self, ticks: u64) {
        self.longest.fetch_max(if broken(Control::PlansUnknown) { 0 } else { ticks }, Ordering::AcqRel);
    }

    /// The state of a bucket that nobody has used. The clock is read only if that depends on it.
    pub(crate) fn unused(&self) -> State {
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
    pub(crate) fn begun<P: Pace>(&self, state: State, reading: &Reading<P>) -> State {
        if state == State::FULL { self.start(reading) } else { state }
    }

    /// What a bucket that was never charged starts from.
    pub(crate) fn start<P: Pace>(&self, reading: &Reading<P>) -> State {
        let Some(tokens) = self.initial else { return State::FULL };
        let terms = reading.pace.terms();
        let level = (terms.floor + terms.units(tokens)).min(reading.pace.capacity());
        State::pack(terms, level, reading.tick)
    }

    /// Attempts again what came to nothing: the word first if the reading was unfit, the clock first if a race was lost.
    /// Nothing if it is unfit again, or lost too often.
    pub(crate) fn attempt_again(
        &self,
        bucket: impl Word,
        mut missed: Missed,
        read: impl ReadOnce,
        n: u64,
    ) -> Option<(Outcome, Reading)> {
        for _ in 0..MOST_ATTEMPTS {
            let first = if missed == Missed::Lost { First::Clock } else { First::Word };
            match bucket.attempt(first, read, n) {
                Ok(done) => return Some(done),
                Err(Missed::Unfit) if first == First::Word => break,
                Err(again) => missed = again,
            }
        }
        None
    }

    /// Runs a step on a bucket outside of a map.
    pub(crate) fn run<P: Pace>(
        &self,
        bucket: impl Word,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> (Outcome, Reading<P>) {
        bucket.advance(read, Run(step))
    }

    /// Runs a step on the bucket at `place`, and tells the reading that counted.
    #[inline(always)]
    pub(crate) fn acquire<'a, P: Pace>(
        &self,
        place: impl Place<'a>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Done<P> {
        let early = stop(Control::ClockBeforeLookUp, read);
        let found = place.search();
        let read = stop(Control::NoRereadAfterSeal, early);
        if let Some(bucket) = found
            && let Some(done) = self.charge(bucket, None, read, step)
        {
            return Ok(done);
        }
        self.acquire_anyhow(place, read, step)
    }

    #[cold]
    #[inline(never)]
    fn acquire_anyhow<'a, P: Pace>(
        &self,
        place: impl Place<'a>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Done<P> {
        for _ in 0..MOST_ROUNDS {
            let Some(bucket) = place.search() else {
                match place.admit(read, step) {
                    Some(done) => return done,
                    None => place.pause(),
                }
                continue;
            };
            if let Some(done) = self.first_charge(bucket, place.overflow(), read, step) {
                return Ok(done);
            }
            place.bury();
        }
        let now = self.clock.nanos();
        Err(Denied::full(step.most(), now, Some(now)))
    }

    #[inline(always)]
    fn charge<P: Pace>(
        &self,
        bucket: impl Word,
        unborn: Option<State>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Option<(Outcome, Reading<P>)> {
        let (outcome, reading) = bucket.advance(read, Charge { rules: self, unborn, step });
        outcome.map(|outcome| (outcome, reading))
    }

    /// Runs a step on a bucket that may be uncharged. Nothing if it is sealed.
    #[cold]
    pub(crate) fn first_charge<P: Pace>(
        &self,
        bucket: impl Word,
        overflow: &Bucket,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Option<(Outcome, Reading<P>)> {
        fence(Ordering::SeqCst);
        let unborn = if broken(Control::DebtsForgotten) { State::FULL } else { overflow.state() };
        self.charge(bucket, Some(unborn), read, step)
    }

    /// Runs a step on a bucket that is in no map, and so never sealed.
    pub(crate) fn run_shared<P: Pace>(
        &self,
        bucket: impl Word,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> (Outcome, Reading<P>) {
        bucket.drive(
            |state| read.read(state),
            |state, reading| {
                let from = self.begun(state, reading);
                let (outcome, next) = step.run(from, reading);
                // Refused at first: it has a level and a stamp from here on all the same.
                (outcome, next.or((from != state).then_some(from)))
            },
        )
    }

    /// Runs a step on the overflow bucket, for a key that has no entry. Nothing if it got one.
    ///
    /// The decision is void, and tokens it took are lost to those who share the bucket, if the key has an
    /// entry after it, or might have had one in between: one that came and went was there for the margin.
    #[cold]
    pub(crate) fn acquire_overflow<'a, P: Pace>(
        &self,
        place: impl Place<'a>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Option<(Outcome, Reading<P>)> {
        let before = self.clock.nanos();
        if place.is_entered() {
            return None;
        }
        let done = self.run_shared(place.overflow(), read, step);
        fence(Ordering::SeqCst);
        let absent = !place.is_entered() && self.clock.nanos().saturating_sub(before) < MARGIN_NANOS;
        (absent || broken(Control::NoVoidGrants)).then_some(done)
    }

    /// Takes up to `n` tokens, on credit if need be, and tells how many. Nothing of a bucket that is sealed.
    pub(crate) fn charge_later(&self, bucket: impl Word, n: u64, plan: Option<Plan>) -> Option<u64> {
        fn step<P: Pace>(n: u64) -> impl Fn(State, &Reading<P>) -> (Option<u64>, Option<State>) {
            move |state, reading| {
                if state == State::SEALED {
                    return (None, None);
                }
                let (outcome, next) = charge_up_to(n, state, reading);
                (Some(reading.pace.terms().tokens(outcome.taken)), next)
            }
        }
        match plan {
            None => bucket.drive(|_| self.read(), step(n)).0,
            Some(plan) => bucket.drive(|_| self.read().under(plan), step(n)).0,
        }
    }

    /// Whether a key may be under a plan. To be asked after its word was loaded: a caller that charges
    /// under a plan does so after the plan was admitted.
    pub(crate) fn has_plans(&self) -> bool {
        self.longest.load(Ordering::Acquire) > 0 && !broken(Control::PlansUnmarked)
    }

    /// Gives back `n` tokens, as many as fit. False if the bucket is sealed, as in the two below.
    pub(crate) fn refund(&self, bucket: impl Word, n: u64, plan: Option<Plan>) -> bool {
        self.settle(bucket, plan, |_| Give(n))
    }

    /// Gives back the tokens of a receipt, if none were taken since.
    pub(crate) fn give_back(&self, bucket: impl Word, receipt: &Receipt) -> bool {
        self.settle(bucket, receipt.plan, |plans| receipt.giving_back(plans))
    }

    /// Gives back what the bucket would still have, had it not been taken.
    pub(crate) fn undo(&self, bucket: impl Word, receipt: &Receipt) -> bool {
        self.settle(bucket, receipt.plan, |plans| receipt.undoing(plans, 0))
    }

    fn settle<S: Settle>(&self, bucket: impl Word, plan: Option<Plan>, step: impl Fn(bool) -> S) -> bool {
        fn run<P: Pace>(step: impl Settle, state: State, reading: &Reading<P>) -> (bool, Option<State>) {
            (state != State::SEALED, step.run(&reading.pace, state, reading.tick))
        }
        let step = || step(self.has_plans());
        match plan {
            None => bucket.drive(|_| self.read(), |state, reading| run(step(), state, reading)).0,
            Some(plan) => {
                bucket.drive(|_| self.read().under(plan), |state, reading| run(step(), state, reading)).0
            }
        }
    }

    /// What a step would come to on the key's bucket, without taking it. Without an entry, that is its overflow bucket.
    pub(crate) fn peek<'a, P: Pace>(
        &self,
        place: impl Place<'a>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> (Outcome, Reading<P>) {
        match place.search().map(|bucket| self.look(bucket, read, step)) {
            Some(((true, outcome), reading)) => (outcome, reading),
            _ => {
                let ((_, outcome), reading) = self.look(place.overflow(), read, step);
                (outcome, reading)
            }
        }
    }

    /// Whether a bucket was ever charged, and what a step would come to on it.
    pub(crate) fn look<P: Pace>(
        &self,
        bucket: impl Word,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> ((bool, Outcome), Reading<P>) {
        let step = |state: State, reading: &_| {
            let from = if state == State::FULL { self.start(reading) } else { state };
            ((state.is_level(), step.run(from, reading).0), None)
        };
        bucket.drive(|state| read.read(state), step)
    }

    /// What decides when a bucket may be sealed, as of now. For states that were loaded before.
    pub(crate) fn leave(&self) -> Leave {
        let longest = self.longest.load(Ordering::Acquire);
        let reading = self.read();
        let calm = self.source.changed().map_or(0, |changed| changed.saturating_add(MARGIN_NANOS));
        Leave { reading, longest, calm_in: calm.saturating_sub(reading.nanos()) }
    }

    /// Seals a bucket that has been full for the margin; else tells the clock reading at which it may be.
    ///
    /// True if this call sealed it, false if it was sealed already.
    pub(crate) fn seal_if_idle(&self, bucket: impl Word) -> Result<bool, u64> {
        let step = |state: State, leave: &Leave| {
            if state.is_taken() {
                return (Ok(false), None);
            }
            match leave.wait(state) {
                0 => (Ok(true), (!broken(Control::NoSeal)).then_some(State::SEALED)),
                wait => (Err(leave.time(wait)), None),
            }
        };
        bucket.drive(|_| self.leave(), step).0
    }

    /// Seals a bucket whatever it holds. False if it was sealed already.
    ///
    /// `count` counts the removal: after each load of the word that is to be sealed, and before the seal.
    pub(crate) fn seal(&self, bucket: impl Word, count: impl Fn()) -> bool {
        let live = |state| state != State::SEALED;
        let (early, late) = (broken(Control::RemovalCountedEarly), broken(Control::RemovalCountedLate));
        if early {
            count();
        }
        let read = |_| {
            if !early && !late {
                count();
            }
        };
        let sealed = bucket.drive(read, |state, ()| (live(state), live(state).then_some(State::SEALED))).0;
        if late {
            count();
        }
        sealed
    }
}
