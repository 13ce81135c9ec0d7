//! The world of the models: a limiter with one key, and a note of its grants and their times.
//!
//! papaya is not made for model checkers. A stand-in has the place of the key in the map: an atomic
//! index into buckets that are made beforehand. The protocol on it is the production code of
//! `src/keyed/protocol.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::run;
use crate::bucket::atomic::{Bucket, BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Ledger, LedgerOf, Reservation};
use crate::keyed::idle;
use crate::keyed::protocol;
use crate::keyed::protocol::{Entry, is_removable};
use crate::keyed::removals::{Removals, Shard};
use crate::rule::gate::Gate;
use crate::rule::layout::{Layout, LayoutOptions, RawQuota};
use crate::rule::rate::Quota;
use crate::rule::window::Window;
use crate::rule::window_layout::WindowLayout;
use crate::sync::{AtomicU64, OnceLock, Ordering};
use crate::time::clock::{Clock, MockClock};
use crate::word::by_refill::{ByRefill, CountedRefill, OwnRefill};
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::state::{Reading, Refill, State, TakeOutcome};
use crate::word::terms::Terms;
use crate::word::verb::{Call, Reserve, Take};
use crate::word::window::ANY;

pub(super) const SECOND: u64 = 1_000_000_000;
/// A bound on the length of a tick: one of the models' slowest quota is shorter.
const TICK: u64 = SECOND / 1000;

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) mock: MockClock,
    /// The only bucket, where there is no map.
    pub(super) alone: Bucket,
    /// The overflow bucket, which the key shares while it has no entry, and a full one in its
    /// place.
    overflow: OnceLock<Bucket>,
    full: Bucket,
    /// The buckets that the key gets, another one with each entry.
    pub(super) buckets: [Bucket; 4],
    used: AtomicU64,
    /// Number of the key's bucket, from 1 on; 0 if the key has no entry.
    entry: AtomicU64,
    removals: Removals,
    /// The time at which each grant is earned, and its tokens.
    grants: Mutex<Vec<(u64, u64)>>,
}

impl World {
    /// Creates a world with a tenth of a token a second, this burst, and a debt of 4.
    pub(super) fn new(burst: u64) -> Arc<World> {
        World::every(10 * SECOND, burst)
    }

    /// Creates a world with a token each `nanos`, this burst, and a debt of 4.
    pub(super) fn every(nanos: u64, burst: u64) -> Arc<World> {
        World::of(fixed(nanos, burst))
    }
}

/// Asserts that grants, each with the time at which it is earned, keep the law. Over any time they
/// have at most the burst, and a token each `nanos`.
pub(super) fn assert_law(grants: &[(u64, u64)], nanos: u64, burst: u64) {
    let mut grants = grants.to_vec();
    grants.sort_unstable();
    for (first, (from, _)) in grants.iter().enumerate() {
        let mut granted = 0;
        for (until, tokens) in &grants[first..] {
            granted += tokens;
            let earned = until - from + TICK;
            assert!(granted.saturating_sub(burst) * nanos <= earned, "granted, and when: {grants:?}");
        }
    }
}

/// Returns terms that never change: a token each `nanos`, this burst, and a debt of 4.
pub(super) fn fixed(nanos: u64, burst: u64) -> LiveTerms {
    let numbers = RawQuota { tokens: 1, nanos, burst };
    let room = LayoutOptions { max_debt: Some(4), ..LayoutOptions::DEFAULT };
    let terms = Terms::compile(numbers, room).unwrap();
    let mut live = LiveTerms::new(Quota::per_second(1), Quota::per_second(1).layout());
    live.fixed = Some(terms);
    live
}

/// Returns terms that never change, of a word that counts a window.
pub(super) fn fixed_window(window: Window) -> LiveTerms {
    fixed_counts(window.layout().unwrap())
}

/// Returns terms that never change, of a word that counts a window or places.
pub(super) fn fixed_counts(WindowLayout { numbers, widths }: WindowLayout) -> LiveTerms {
    let layout = Layout { widths, debt: 0 };
    let mut live = LiveTerms::of(numbers, Gate::Counted, layout);
    live.fixed = Some(Terms::in_layout(numbers, layout));
    live
}

/// Attempts once to take `n` tokens of a bucket or a window.
pub(super) fn attempt(
    engine: &Engine,
    first: Order,
    bucket: impl BucketRef,
    n: u64,
) -> Result<(TakeOutcome, Reading), Miss> {
    let take = Take::Exactly(n);
    match engine.counts_windows() {
        true => {
            let by = CountedRefill::<ANY>(engine.source.counts());
            bucket.attempt_by(first, Now(engine), take, by).map(own)
        }
        false => bucket.attempt(first, Now(engine), take),
    }
}

/// Attempts again a take that came to nothing.
pub(super) fn attempt_again(
    engine: &Engine,
    bucket: impl BucketRef,
    n: u64,
) -> Option<(TakeOutcome, Reading)> {
    let take = Take::Exactly(n);
    match engine.counts_windows() {
        true => {
            let by = CountedRefill::<ANY>(engine.source.counts());
            engine.attempt_again(bucket, Now(engine), take, by).map(own)
        }
        false => engine.attempt_again(bucket, Now(engine), take, OwnRefill),
    }
}

/// Returns an outcome with the reading of the terms.
pub(super) fn own<P: Refill>((outcome, by): (TakeOutcome, Reading<P>)) -> (TakeOutcome, Reading) {
    (outcome, Reading { refill: *by.refill.terms(), at: by.at, tick: by.tick })
}

/// Makes the attempts with which a decision begins.
pub(super) fn attempts(
    engine: &Engine,
    first: Order,
    bucket: &Bucket,
    n: u64,
) -> Option<(TakeOutcome, Reading)> {
    attempt(engine, first, bucket, n).ok().or_else(|| attempt_again(engine, bucket, n))
}

impl World {
    pub(super) fn of(source: LiveTerms) -> Arc<World> {
        let (clock, mock) = Clock::mock();
        World::on(source, clock, mock)
    }

    pub(super) fn on(source: LiveTerms, clock: Clock, mock: MockClock) -> Arc<World> {
        Arc::new(World {
            engine: Engine::new(source, clock, None),
            mock,
            alone: Bucket::new(),
            overflow: OnceLock::new(),
            full: Bucket::new(),
            buckets: [Bucket::new(), Bucket::new(), Bucket::new(), Bucket::new()],
            used: AtomicU64::new(0),
            entry: AtomicU64::new(0),
            removals: Removals::new(),
            grants: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn now(&self) -> Now<'_> {
        Now(&self.engine)
    }

    pub(super) fn note(&self, done: impl Into<Done>) -> bool {
        let Done { outcome, reading, .. } = done.into();
        let tokens = reading.refill.tokens(outcome.taken);
        self.grants().push((reading.nanos(), tokens));
        outcome.granted
    }

    fn grants(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time at which the last noted grant is earned.
    pub(super) fn last_grant(&self) -> u64 {
        self.grants().last().expect("something was granted").0
    }

    /// Returns the tokens granted.
    pub(super) fn granted(&self) -> u64 {
        self.grants().iter().map(|(_, tokens)| tokens).sum()
    }

    /// Asserts that over any time at most the burst was granted, and a token each `nanos`.
    pub(super) fn assert_law(&self, nanos: u64, burst: u64) {
        assert_law(&self.grants(), nanos, burst);
    }

    /// Takes a token of the key, which gets an entry if it has none.
    pub(super) fn take(&self) {
        let found = Seat { world: self, room: true }.get();
        match found.and_then(|bucket| attempts(&self.engine, Order::WordFirst, bucket, 1)) {
            Some(done) => {
                self.note(done);
            }
            None => self.take_after(found.is_none(), None),
        }
    }

    pub(super) fn take_as(&self, plan: Option<PlanTerms>) {
        self.take_after(false, plan);
    }

    /// Takes a token by the loop, after an attempt that perhaps found no entry.
    fn take_after(&self, is_absent: bool, plan: Option<PlanTerms>) {
        let (seat, call) =
            (Seat { world: self, room: true }, Call { take: Take::Exactly(1), plan: plan.as_ref() });
        if let Ok(done) = protocol::acquire(&self.engine, seat, is_absent, self.now(), &call) {
            self.note(done);
        }
    }

    /// Takes a token of the key under a plan, by an attempt, and at length if that misses.
    pub(super) fn take_under(&self, plan: PlanTerms) {
        let (found, by) = (Seat { world: self, room: true }.get(), OwnRefill.under(&plan));
        let attempt = |bucket: &Bucket| {
            bucket.attempt_by(Order::WordFirst, self.now(), Take::Exactly(1), by).ok().map(own)
        };
        match found.and_then(attempt) {
            Some(done) => {
                self.note(done);
            }
            None => self.take_after(found.is_none(), Some(plan)),
        }
    }

    /// Runs a call on a bucket that is never sealed.
    pub(super) fn run_on<'c>(
        &self,
        bucket: &Bucket,
        read: impl ReadClock,
        call: impl Into<Call<'c>>,
    ) -> Done {
        let done = self.engine.charge(bucket, Some(State::FULL), read, call.into());
        done.expect("it is never sealed")
    }

    /// Runs a step on the key's bucket. The key gets a bucket if it has none.
    pub(super) fn acquire(&self, step: Take) -> Result<Done, Denied> {
        protocol::acquire(&self.engine, Seat { world: self, room: true }, false, self.now(), &step.into())
    }

    pub(super) fn removals(&self) -> Shard<'_> {
        self.removals.of(1)
    }

    /// Takes a token of the key by the loop, without an attempt before it. (A take that an attempt
    /// decides does not come to the loop.)
    pub(super) fn take_at_length(&self) {
        self.take_as(None);
    }

    /// Like [`take_alone`](World::take_alone), but by the loop, without an attempt before it.
    pub(super) fn take_alone_at_length(&self) {
        self.note(self.run_on(&self.alone, self.now(), Take::Exactly(1)));
    }

    /// Takes a token of the key, for which there is no room in the map.
    pub(super) fn take_without_room(&self) {
        let (seat, call) = (Seat { world: self, room: false }, Take::Exactly(1).into());
        if let Ok(done) = protocol::acquire(&self.engine, seat, false, self.now(), &call) {
            self.note(done);
        }
    }

    /// Takes a token where there is no map.
    pub(super) fn take_alone(&self) {
        self.take_from(&self.alone);
    }

    pub(super) fn take_from(&self, bucket: &Bucket) {
        let done = attempts(&self.engine, Order::ClockFirst, bucket, 1).map(Done::from);
        self.note(done.unwrap_or_else(|| self.run_on(bucket, self.now(), Take::Exactly(1))));
    }

    /// Returns the bucket of the key, if it has one.
    pub(super) fn find(&self) -> Option<&Bucket> {
        self.bucket(self.entry.load(Ordering::Acquire))
    }

    fn bucket(&self, entry: u64) -> Option<&Bucket> {
        entry.checked_sub(1).map(|index| &self.buckets[index as usize])
    }

    /// Gives the key an entry with a new bucket, and returns that, if there was no entry.
    fn insert(&self) -> Option<&Bucket> {
        let number = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        let inserted = self.entry.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        inserted.ok().and_then(|_| self.bucket(number))
    }

    pub(super) fn remove_sealed(&self) {
        let entry = self.entry.load(Ordering::Acquire);
        if self.bucket(entry).is_some_and(is_removable) {
            let _ = self.entry.compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    pub(super) fn evict(&self) {
        if let Some(bucket) = self.find()
            && idle::seal_if_idle(&self.engine, bucket).is_ok()
        {
            self.remove_sealed();
        }
    }

    pub(super) fn run(self: &Arc<World>, threads: &[fn(&World)]) {
        run(self, threads);
    }
}

impl World {
    /// Reserves a token where there is no map. The grant is noted only if the reservation is
    /// committed.
    pub(super) fn reserve(&self) -> Option<Reservation<'_>> {
        let step = Take::Reserve(Reserve { n: 1, keep: 0, max_wait: u64::MAX });
        let Done { outcome, reading, .. } = self.run_on(&self.alone, self.now(), step);
        let receipt = Receipt::new(outcome, &reading, None);
        outcome
            .granted
            .then(|| Reservation::new(LedgerOf::Borrowed(self), receipt, Granted::new(outcome, &reading)))
    }

    /// Commits the reservation, and returns the time at which it is earned.
    pub(super) fn commit(&self, reservation: Reservation<'_>) -> u64 {
        let ready = reservation.ready_at().0;
        let _ = reservation.commit();
        self.grants().push((ready, 1));
        ready
    }
}

impl Ledger for World {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        self.engine.settle(&self.alone, receipt.plan.as_ref(), settle).expect("it is never sealed")
    }
}

/// The place of the key in the map.
struct Seat<'a> {
    world: &'a World,
    room: bool,
}

impl Clone for Seat<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Seat<'_> {}

impl<'a> Entry<'a> for Seat<'a> {
    type BucketRef = &'a Bucket;

    fn get(self) -> Option<&'a Bucket> {
        self.world.find()
    }

    fn insert(self, read: impl ReadClock, call: &Call) -> Option<Result<Done, Denied>> {
        let engine = &self.world.engine;
        let done = match self.room {
            true => {
                let (bucket, start) = protocol::insert_uncharged(self, || self.world.insert())?;
                engine.charge(bucket, Some(start), read, *call)
            }
            false => protocol::acquire_overflow(engine, self, read, *call),
        };
        done.map(Ok)
    }

    fn remove_sealed(self) {
        self.world.remove_sealed();
    }

    fn overflow_bucket(self) -> &'a Bucket {
        self.world.overflow.get_or_init(Bucket::new)
    }

    fn overflow_or_full(self) -> &'a Bucket {
        self.world.overflow.get().unwrap_or(&self.world.full)
    }
}
