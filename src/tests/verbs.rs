// promise: law, never-late
//! All verbs in random order, compared with the ideal bucket. The clock moves both ways, and the
//! quota changes.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_testing::cases;
use tollgate_testing::reference::strategies::{Step, inner_verbs, moves, own, plans, starts, steps};
use tollgate_testing::reference::{Answer, Asked, Ideal, Unit};

use super::reference::answers::answer;
use super::reference::drive::Driver;
use super::reference::subject::{Decision, Made, Reserved, Returned, Subject};
use super::reference::time::Time;
use super::terms::{EXTREMES, TABLE, numbers, quotas, unit_of};
use crate::bucket::atomic::{Bucket, ReadClock};
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Ledger, LedgerOf, Reservation};
use crate::rule::layout::{Layout, LayoutOptions};
use crate::rule::rate::Quota;
use crate::time::clock::Moment;
use crate::word::decision::Granted;
use crate::word::plan::PlanTerms;
use crate::word::state::State;
use crate::word::verb::{Call, Reserve, Take};

/// One bucket and its engine. The tests see the word of the bucket.
pub(super) struct Bench {
    engine: Engine,
    pub(super) bucket: Bucket,
}

/// A ledger that takes nothing back.
struct Nobody;

impl Ledger for Nobody {
    fn settle(&self, _: &Receipt, _: Settle<'_>) -> u64 {
        0
    }
}

/// Returns the reservation of a receipt, to ask for its delay. A drop of it gives nothing back.
pub(super) fn reservation(receipt: Receipt, granted: Granted) -> Reservation<'static> {
    Reservation::new(LedgerOf::Borrowed(&Nobody), receipt, granted)
}

impl Bench {
    pub(super) fn new(quota: Quota, layout: Layout, initial: Option<u64>, start: u64) -> (Bench, Time) {
        let (clock, time) = Time::at(start);
        let engine = Engine::new(LiveTerms::new(quota, layout), clock, initial);
        let bucket = Bucket::from_state(engine.initial());
        (Bench { engine, bucket }, time)
    }

    /// Runs a step. Returns the decision, the receipt, and the clock reading that counted.
    fn run(&self, read: impl ReadClock, take: Take, plan: Option<PlanTerms>) -> (Decision, Receipt, u64) {
        let call = Call { take, plan };
        let (done, committed) =
            self.committed(|| self.engine.charge(&self.bucket, Some(State::FULL), read, call));
        let Done { outcome, reading, .. } = done.expect("it is never sealed");
        let receipt = Receipt::of(call, outcome, &reading);
        assert!(committed || receipt.units == 0, "a grant commits");
        assert!(!committed || take.n() > 0, "taking nothing commits nothing");
        (call.decision(outcome, reading), receipt, reading.at)
    }

    fn settle(&self, plan: Option<PlanTerms>, settle: Settle<'_>) -> u64 {
        self.engine.settle(&self.bucket, plan, settle).expect("it is never sealed")
    }

    pub(super) fn run_now(&self, step: Take, plan: Option<PlanTerms>) -> (Decision, Option<Receipt>) {
        let (decision, receipt, _) = self.run(Now(&self.engine), step, plan);
        (decision, Some(receipt).filter(|receipt| receipt.units > 0))
    }

    /// Returns whether the bucket stands as a take has left it.
    fn stands(&self, receipt: &Receipt) -> bool {
        let (state, reading) = (self.bucket.state(), self.engine.read());
        state.stands(&reading.refill, reading.tick, receipt.left(self.engine.has_plans()))
    }

    /// Returns whether an undo of a take gives nothing back, because the bucket has changed since.
    /// That is so if a later caller waits, or if the limiter has plans.
    fn promised_on(&self, receipt: &Receipt) -> bool {
        let (state, reading) = (self.bucket.state(), self.engine.read());
        let level = match receipt.plan {
            None => reading.view(state).level,
            Some(plan) => reading.under(plan).view(state).level,
        };
        (level < reading.refill.empty_level || self.engine.has_plans()) && !self.stands(receipt)
    }

    /// Runs `step`. Returns its result, and whether the word was changed.
    fn committed<R>(&self, step: impl FnOnce() -> R) -> (R, bool) {
        let before = self.bucket.state();
        let result = step();
        let after = self.bucket.state();
        assert!(after == before || after.is_level());
        (result, after != before)
    }
}

impl Subject for Bench {
    type Plan = PlanTerms;
    type Taken = Receipt;
    const ZERO_PATIENCE_TAKES: bool = false;

    fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    fn quota(&self) -> Quota {
        self.engine.source.quota()
    }

    fn look(&self, plan: Option<PlanTerms>) -> Answer {
        answer(self.take(0, plan).0)
    }

    fn take(&self, n: u64, plan: Option<PlanTerms>) -> (Decision, Option<Receipt>) {
        self.run_now(Take::Exactly(n), plan)
    }

    fn take_at(&self, now: Moment, n: u64, plan: Option<PlanTerms>) -> (Decision, Option<u64>) {
        let (decision, _, at) = self.run(At(&self.engine, now), Take::Exactly(n), plan);
        (decision, Some(at))
    }

    fn up_to(&self, n: u64, keep: u8, plan: Option<PlanTerms>) -> (Decision, Option<Receipt>) {
        self.run_now(if keep == 0 { Take::UpTo(n) } else { Take::UpToAbove { n, keep } }, plan)
    }

    fn above(&self, n: u64, percent: u8, plan: Option<PlanTerms>) -> (Decision, Option<Receipt>) {
        self.run_now(Take::Above { n, keep: percent }, plan)
    }

    fn reserve(&self, n: u64, keep: u8, patience: Option<u64>, plan: Option<PlanTerms>) -> Reserved<Receipt> {
        let step = Take::Reserve(Reserve { n, keep, max_wait: patience.unwrap_or(u64::MAX) });
        let (decision, receipt, _) = self.run(Now(&self.engine), step, plan);
        let reservation = reservation(receipt, decision?);
        let kept = Some(receipt).filter(|receipt| receipt.units > 0);
        let (delay, ready_at) = (reservation.delay(), reservation.ready_at());
        Ok(Made { answer: answer(decision), delay, ready_at, kept })
    }

    fn refund(&self, n: u64, plan: Option<PlanTerms>) -> Option<bool> {
        Some(self.committed(|| self.settle(plan, Settle::Refund(n))).1)
    }

    fn give_back(&self, receipt: Receipt) -> Returned {
        let last = self.stands(&receipt);
        let (_, committed) = self.committed(|| self.settle(receipt.plan, Settle::Cancel(&receipt)));
        Returned::Seen { last, committed }
    }

    fn undo(&self, receipt: Receipt) -> (bool, bool) {
        let void = self.promised_on(&receipt);
        (void, self.committed(|| self.settle(receipt.plan, Settle::Undo(&receipt))).1)
    }

    fn charge(&self, n: u64, plan: Option<PlanTerms>) -> u64 {
        self.settle(plan, Settle::Charge(n))
    }

    fn set_quota(&self, quota: Quota) -> bool {
        self.engine.source.set(quota, &self.engine.clock).is_ok()
    }

    fn plan(&self, quota: Quota) -> Option<PlanTerms> {
        let plan = self.engine.source.plan(0, quota, &self.engine.clock).ok()?;
        self.engine.admit_plan(plan.ticks_to_fill());
        Some(plan)
    }
}

fn walk(quota: Asked, room: LayoutOptions, initial: Option<u64>, start: u64, steps: Vec<Step>) {
    let (tokens, period, burst) = quota;
    let Ok(layout) = Layout::of(numbers(quota), room) else { return };
    let Ok(public) = Quota::checked(tokens, Duration::from_nanos(period), burst) else { return };
    let head = room.headroom.map(|head| (head.tokens, head.nanos, head.burst));
    let unit = Unit::with_room(quota, head, room.max_debt).expect("a layout");
    assert_eq!(unit_of(layout), unit);
    let ideal = Ideal::in_unit(tokens, period, burst, unit);
    let ideal = match initial {
        Some(n) => ideal.starting_with(n, Some(start)),
        None => ideal,
    };
    let (bench, time) = Bench::new(public, layout, initial, start);
    Driver::new(bench, ideal, unit, time).run(steps);
}

/// The options of a layout: the factors of rate and burst for a headroom of the same period, and
/// the bound on debt in parts of the burst.
pub(super) type Rooms = (Option<(f64, f64)>, Option<f64>);

pub(super) fn rooms() -> impl Strategy<Value = Rooms> {
    let head = (-3.0..3.0_f64, -2.0..2.0_f64).prop_map(|(rate, burst)| (rate.exp2(), burst.exp2()));
    let debt = prop_oneof![Just(0.0), Just(1.0), 0.0..3.0];
    (prop::option::of(head), prop::option::of(debt))
}

pub(super) fn room_of((head, debt): Rooms, (tokens, nanos, burst): Asked) -> LayoutOptions {
    let times = |n: u64, by: f64, most: u64| ((n as f64 * by) as u64).clamp(1, most);
    LayoutOptions {
        headroom: head
            .map(|(rate, size)| numbers((times(tokens, rate, 1 << 44), nanos, times(burst, size, 1 << 40)))),
        max_debt: debt.map(|debt| (burst as f64 * debt) as u64),
    }
}

fn listed() -> impl Strategy<Value = Asked> {
    let row = 0..TABLE.len() + EXTREMES.len();
    row.prop_map(|row| TABLE.iter().map(|(quota, _)| *quota).chain(EXTREMES).nth(row).expect("a row"))
}

/// Returns quotas with numbers that the reference can count with.
fn counted() -> impl Strategy<Value = Asked> {
    quotas().prop_map(|(tokens, nanos, burst)| (tokens.min((1 << 44) - 1), nanos, burst))
}

fn initials() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![3 => Just(None), 1 => (0..20_u64).prop_map(Some)]
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn any_bucket_keeps_to_the_ideal_under_all_verbs(
        quota in counted(),
        rooms in rooms(),
        initial in initials(),
        start in starts(),
        steps in steps(moves(), own(), inner_verbs(), 120),
    ) {
        walk(quota, room_of(rooms, quota), initial, start, steps);
    }

    /// The plans are made before changes of the quota and after them, and are used beside the own
    /// quota. Some readings are behind by jitter, and some are older.
    #[test]
    fn any_bucket_keeps_to_the_ideal_under_plans(
        (tokens, nanos, burst) in quotas(),
        rooms in rooms(),
        initial in initials(),
        start in starts(),
        steps in steps(moves(), plans(), inner_verbs(), 120),
    ) {
        // The reference multiplies a plan's rate by a level, so both are bounded here.
        let quota = (tokens.min(1 << 30), nanos.min(1 << 50), burst.min(1 << 30));
        walk(quota, room_of(rooms, quota), initial, start, steps);
    }

    #[test]
    fn the_buckets_of_the_table_keep_to_the_ideal_under_all_verbs(
        quota in listed(),
        rooms in rooms(),
        initial in initials(),
        start in starts(),
        steps in steps(moves(), own(), inner_verbs(), 120),
    ) {
        walk(quota, room_of(rooms, quota), initial, start, steps);
    }
}

/// A reservation of 0 tokens is due at once, even behind waiting callers. A drop of it gives
/// nothing back.
#[test]
fn a_reservation_of_nothing_is_due_at_once() {
    let quota = Quota::per_second(1).burst(5);
    let (bench, _time) = Bench::new(quota, quota.layout(), None, 1_000_000_000);
    assert!(bench.reserve(5, 0, None, None).is_ok() && bench.reserve(3, 0, None, None).is_ok());
    let before = bench.bucket.state();
    let (decision, receipt, _) =
        bench.run(Now(&bench.engine), Take::Reserve(Reserve { n: 0, keep: 0, max_wait: u64::MAX }), None);
    assert!(reservation(receipt, decision.unwrap()).delay().is_zero());
    bench.settle(None, Settle::Cancel(&receipt));
    assert_eq!(bench.bucket.state(), before);
    assert_ne!(before, State::FULL);
}
