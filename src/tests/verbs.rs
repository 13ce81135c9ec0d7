// promise: law, never-late
//! All verbs in random order against the ideal bucket, on a clock that moves both ways and under quotas that change.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};

use super::reference;
use super::reference::verbs::{Promise, Slot};
use super::reference::{Answer, Ideal, Unit};
use super::state::{Move, answer, moves, nanos};
use super::terms::{Asked, EXTREMES, TABLE, numbers, quotas, unit_of};
use crate::bucket::atomic::{Bucket, ReadClock};
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Ledger, Reservation};
use crate::quota::layout::{Layout, LayoutOptions};
use crate::quota::rate::Quota;
use crate::time::clock::{Clock, MockClock, Moment};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::Plan;
use crate::word::state::State;
use crate::word::verb::{Call, Take};

/// One bucket on a clock that is told what to read.
pub(super) struct Bench {
    pub(super) engine: Engine,
    pub(super) bucket: Bucket,
    mock: MockClock,
    pub(super) now: u64,
    /// Of the next steps.
    plan: Option<Plan>,
}

/// Takes nothing back: reservations are only asked for their delay.
struct Nobody;

impl Ledger for Nobody {
    fn settle(&self, _: &Receipt, _: Settle<'_>) -> u64 {
        0
    }
}

pub(super) type Reserved = Result<(Granted, Receipt, u64), Denied>;

impl Bench {
    pub(super) fn new(quota: Quota, layout: Layout, initial: Option<u64>, start: u64) -> Bench {
        let (clock, mock) = Clock::mock();
        let engine = Engine::new(LiveTerms::new(quota, layout), clock, initial);
        let mut bench = Bench { engine, bucket: Bucket::new(), mock, now: 0, plan: None };
        bench.go_to(start);
        bench.bucket = Bucket::from_state(bench.engine.initial());
        bench
    }

    pub(super) fn go_to(&mut self, now: u64) {
        self.mock.advance(Duration::from_nanos(now.saturating_sub(self.now)));
        self.mock.rewind(Duration::from_nanos(self.now.saturating_sub(now)));
        self.now = now;
    }

    pub(super) fn take(&self, step: Take) -> (Result<Granted, Denied>, Receipt) {
        let (decision, receipt, _) = self.take_by(Now(&self.engine), step);
        (decision, receipt)
    }

    /// Tells the reading that counted, too.
    fn take_by(&self, read: impl ReadClock, take: Take) -> (Result<Granted, Denied>, Receipt, u64) {
        let call = Call { take, plan: self.plan };
        let done = self.engine.charge(&self.bucket, Some(State::FULL), read, call);
        let Done { outcome, reading, .. } = done.expect("it is never sealed");
        (call.decision(outcome, reading), Receipt::new(outcome, &reading, self.plan), reading.at)
    }

    /// Settles a take under the plan of the next steps, or of the receipt.
    pub(super) fn settle(&self, plan: Option<Plan>, settle: Settle<'_>) -> u64 {
        self.engine.settle(&self.bucket, plan, settle).expect("it is never sealed")
    }

    pub(super) fn reserve(&self, n: u64, max_wait: Option<u64>) -> Reserved {
        let (decision, receipt) = self.take(Take::Reserve { n, max_wait: max_wait.unwrap_or(u64::MAX) });
        let granted = decision?;
        Ok((granted, receipt, self.delay(receipt, granted)))
    }

    pub(super) fn delay(&self, receipt: Receipt, granted: Granted) -> u64 {
        let reservation = Reservation::new(&Nobody, receipt, granted);
        let delay = nanos(reservation.delay());
        assert_eq!(reservation.ready_at(), Moment(self.now + delay));
        delay
    }

    pub(super) fn look(&self) -> Answer {
        answer(self.take(Take::Exactly(0)).0)
    }

    /// Whether the bucket stands as a take has left it.
    pub(super) fn stands(&self, receipt: &Receipt) -> bool {
        let (state, reading) = (self.bucket.state(), self.engine.read());
        state.stands(&reading.refill, reading.tick, receipt.left(self.engine.has_plans()))
    }

    /// Whether nothing of a take is undone: a later one waits whose time was promised on top of it, or may have been under
    /// another plan.
    pub(super) fn promised_on(&self, receipt: &Receipt) -> bool {
        let (state, reading) = (self.bucket.state(), self.engine.read());
        let level = match receipt.plan {
            None => reading.view(state).level,
            Some(plan) => reading.under(plan).view(state).level,
        };
        (level < reading.refill.empty_level || self.engine.has_plans()) && !self.stands(receipt)
    }

    /// Whether the word was changed by it.
    fn committed<R>(&self, step: impl FnOnce() -> R) -> (R, bool) {
        let before = self.bucket.state();
        let result = step();
        let after = self.bucket.state();
        assert!(after == before || after.is_level());
        (result, after != before)
    }
}

/// What is done after the clock has moved, by parts of what there is.
#[derive(Clone, Debug)]
enum Verb {
    Take,
    TakeUpTo,
    /// A step on a reading from before, which may be too old for it.
    TakeAt(f64),
    /// With a patience of so many token times.
    Reserve(Option<f64>),
    Refund,
    /// Gives back a reservation or a take; 0 is the latest.
    Drop(usize),
    Undo(usize),
    Charge,
    /// The rate and the burst times these.
    SetQuota(f64, f64),
    /// A plan of the rate and the burst times these.
    Plan(f64, f64),
}

fn verbs() -> impl Strategy<Value = Verb> {
    let max_wait = || prop_oneof![Just(None), (0.0..9.0).prop_map(Some)];
    let which = || prop_oneof![3 => Just(0_usize), 1 => 0..4_usize];
    prop_oneof![
        8 => Just(Verb::Take),
        3 => Just(Verb::TakeUpTo),
        1 => (0.0..2.0).prop_map(Verb::TakeAt),
        8 => max_wait().prop_map(Verb::Reserve),
        2 => Just(Verb::Refund),
        4 => which().prop_map(Verb::Drop),
        2 => which().prop_map(Verb::Undo),
        3 => Just(Verb::Charge),
        1 => (-3.0..3.0_f64, -2.0..2.0_f64).prop_map(|(rate, burst)| Verb::SetQuota(rate.exp2(), burst.exp2())),
        // For those that have room for it.
        1 => (-4.0..4.0_f64, -3.0..0.5_f64).prop_map(|(rate, burst)| Verb::Plan(rate.exp2(), burst.exp2())),
    ]
}

/// A few tokens, about the burst, about two; none, or too many.
fn amount(part: f64, burst: u64) -> u64 {
    match (part * 16.0) as u64 {
        0 => (part * 32.0) as u64,
        1 | 2 => (part * burst as f64 * 5.2) as u64,
        3 => (part * burst as f64 * 8.0) as u64,
        _ => 1 + (part * burst.min(9) as f64) as u64 / 2,
    }
}

/// Where a move takes the clock.
pub(super) fn moved(step: &Move, now: u64, token: f64, burst: u64, jitter: u64) -> u64 {
    match *step {
        Move::Still | Move::Retry { .. } => now,
        Move::Nanos(by) => now + by,
        Move::Tokens(by) => now.saturating_add((by * token) as u64),
        Move::Fills(by) => now.saturating_add((by * token * burst as f64) as u64),
        Move::Years(by) => now.saturating_add((by * 3.15e16) as u64),
        Move::Stale(by) => now.saturating_sub((by * jitter as f64) as u64),
        Move::Back(by) => now.saturating_sub(jitter).saturating_sub((by * 3.6e12) as u64),
    }
}

/// The bucket, its ideal, and what was taken from it.
struct Pair {
    bench: Bench,
    ideal: Ideal,
    quota: Asked,
    taken: Vec<(Receipt, Slot, Option<reference::plan::Plan>)>,
    /// None, unless there may be some.
    plans: Option<Vec<(Plan, reference::plan::Plan)>>,
}

/// What was refused, for how long, and would be asked for again.
type Refused = Option<(u64, Verb, u64, Option<u64>)>;

impl Pair {
    fn new(quota: Asked, room: LayoutOptions, initial: Option<u64>, start: u64) -> Option<Pair> {
        let layout = Layout::of(numbers(quota), room).ok()?;
        let (tokens, period, burst) = quota;
        let public = Quota::try_per(tokens, Duration::from_nanos(period), burst).ok()?;
        let head = room.headroom.map(|head| (head.tokens, head.nanos, head.burst));
        let unit = Unit::with_room(quota, head, room.max_debt).expect("a layout");
        assert_eq!(unit_of(layout), unit);
        let ideal = Ideal::in_unit(tokens, period, burst, unit);
        let ideal = match initial {
            Some(n) => ideal.starting_with(n, Some(start)),
            None => ideal,
        };
        let bench = Bench::new(public, layout, initial, start);
        Some(Pair { bench, ideal, quota, taken: Vec::new(), plans: None })
    }

    fn token(&self) -> f64 {
        self.quota.1 as f64 / self.quota.0 as f64
    }

    fn keep(&mut self, receipt: Receipt, slot: Slot) {
        if receipt.units > 0 {
            self.taken.push((receipt, slot, self.plan_of(receipt.plan)));
        }
    }

    fn plan_of(&self, plan: Option<Plan>) -> Option<reference::plan::Plan> {
        let plans = self.plans.iter().flatten();
        plans.rev().find(|(ours, _)| Some(*ours) == plan).map(|(_, theirs)| *theirs)
    }

    /// What follows is under one of the plans, or under none.
    fn under(&mut self, which: usize) {
        let plan = self.plans.iter().flatten().rev().nth(which).copied();
        self.bench.plan = plan.map(|(ours, _)| ours);
        self.ideal.under(plan.map(|(_, theirs)| theirs));
    }

    fn pick(&mut self, back: usize) -> Option<(Receipt, Slot)> {
        let index = self.taken.len().checked_sub(back + 1)?;
        let (receipt, slot, plan) = self.taken.remove(index);
        self.bench.plan = receipt.plan;
        self.ideal.under(plan);
        Some((receipt, slot))
    }

    /// Does it and holds it against the ideal. The wait of what was refused.
    fn step(&mut self, verb: &Verb, n: u64, max_wait: Option<u64>) -> Result<Option<u64>, String> {
        let (bench, now) = (&self.bench, self.bench.now);
        let slot = self.ideal.slot(now, n);
        match *verb {
            Verb::Take => {
                let ((decision, receipt), committed) = bench.committed(|| bench.take(Take::Exactly(n)));
                assert!(n == 0 || decision.is_err() || committed, "a grant commits");
                let answer = answer(decision);
                self.ideal.take(now, n, answer)?;
                self.keep(receipt, slot);
                Ok(answer.retry_after)
            }
            Verb::TakeUpTo => {
                let (decision, receipt) = bench.take(Take::UpTo(n));
                let taken = decision.map_or(0, |granted| granted.tokens());
                let answer = answer(decision);
                let slot = self.ideal.slot(now, taken);
                self.ideal.take_up_to(now, n, taken, answer)?;
                self.keep(receipt, slot);
                Ok(answer.retry_after)
            }
            Verb::TakeAt(back) => {
                let then = now.saturating_sub((back * self.token()) as u64);
                let (decision, _, at) = bench.take_by(At(&bench.engine, Moment(then)), Take::Exactly(n));
                assert!(at == then || at == now);
                self.ideal.take(at, n, answer(decision))?;
                Ok(None)
            }
            Verb::Reserve(_) => {
                let ((reserved, committed), bound) = (bench.committed(|| bench.reserve(n, max_wait)), n > 0);
                assert!(!bound || reserved.is_err() || committed, "a promise commits");
                let promise = match reserved {
                    Ok((granted, _, delay)) => {
                        Promise { answer: answer(Ok(granted)), delay: Some(delay), indebted: false }
                    }
                    Err(denied) => {
                        let indebted = denied.reason() == Reason::Debt;
                        Promise { answer: answer(Err(denied)), delay: None, indebted }
                    }
                };
                self.ideal.reserve(now, n, max_wait, promise)?;
                if let Ok((_, receipt, _)) = reserved {
                    self.keep(receipt, slot);
                }
                Ok(promise.answer.retry_after)
            }
            Verb::Refund => {
                let (_, committed) = bench.committed(|| bench.settle(bench.plan, Settle::Refund(n)));
                self.ideal.refund(now, n, Some(committed))?;
                Ok(None)
            }
            Verb::Drop(back) => {
                let Some((receipt, slot)) = self.pick(back) else { return Ok(None) };
                let bench = &self.bench;
                let last = bench.stands(&receipt);
                let (_, committed) = bench.committed(|| bench.settle(receipt.plan, Settle::Cancel(&receipt)));
                self.ideal.give_back(now, &slot, Some((last, committed)))?;
                Ok(None)
            }
            Verb::Undo(back) => {
                let Some((receipt, slot)) = self.pick(back) else { return Ok(None) };
                let bench = &self.bench;
                let lost = bench.promised_on(&receipt);
                let (_, committed) = bench.committed(|| bench.settle(receipt.plan, Settle::Undo(&receipt)));
                if lost {
                    return if committed { Err("a promise was injected".to_owned()) } else { Ok(None) };
                }
                self.ideal.undo(now, &slot, Some(committed))?;
                Ok(None)
            }
            Verb::Charge => {
                // Nothing is never charged.
                let n = n.max(1);
                let taken = bench.settle(bench.plan, Settle::Charge(n));
                self.ideal.charge_up_to(now, n, taken)?;
                Ok(None)
            }
            Verb::SetQuota(rate, burst) => {
                let times = |n: u64, by: f64, most: u64| ((n as f64 * by) as u64).clamp(1, most);
                let quota @ (tokens, period, burst) =
                    (times(self.quota.0, rate, 1 << 44), self.quota.1, times(self.quota.2, burst, 1 << 40));
                let period = Duration::from_nanos(period);
                let wraps = self.plans.is_some() && !self.ideal.ticks_are_slow();
                if let Ok(public) = Quota::try_per(tokens, period, burst)
                    && !wraps
                    && bench.engine.source.set(public, &bench.engine.clock).is_ok()
                {
                    self.ideal.set_quota(now, tokens, burst);
                    self.quota = quota;
                }
                Ok(None)
            }
            Verb::Plan(rate, burst) => {
                let times = |n: u64, by: f64| ((n as f64 * by) as u64).max(1);
                let (tokens, period, burst) =
                    (times(self.quota.0, rate), self.quota.1, times(self.quota.2, burst));
                if let Some(plans) = &mut self.plans
                    && self.ideal.ticks_are_slow()
                    && let Ok(public) = Quota::try_per(tokens, Duration::from_nanos(period), burst)
                    && let Ok(plan) = bench.engine.source.plan(0, public, &bench.engine.clock)
                {
                    bench.engine.admit_plan(plan.ticks_to_fill());
                    plans.push((plan, self.ideal.plan(tokens, period, burst)));
                }
                Ok(None)
            }
        }
    }
}

fn walk(mut pair: Pair, steps: &[(Move, Verb, f64, usize)]) -> TestCaseResult {
    let mut refused: Refused = None;
    for (by, verb, part, which) in steps {
        let (token, jitter) = (pair.token(), pair.ideal.jitter());
        let mut now = moved(by, pair.bench.now, token, pair.quota.2, jitter);
        let mut asked = (verb.clone(), amount(*part, pair.quota.2), None);
        if let Verb::Reserve(Some(max_wait)) = verb {
            asked.2 = Some((max_wait * token) as u64);
        }
        let mut must = None;
        if let (Move::Retry { early }, Some((wait, verb, n, max_wait))) = (by, refused.take())
            && wait > 0
        {
            // Under the plan that it was refused under.
            now = now.saturating_add(wait - u64::from(*early));
            (asked, must) = ((verb, n, max_wait), Some(!early));
        } else {
            pair.under(*which);
        }
        if now >= 1 << 62 {
            break;
        }
        pair.bench.go_to(now);
        let (verb, n, max_wait) = asked;
        let retry = pair.step(&verb, n, max_wait).map_err(TestCaseError::fail)?;
        if let Some(granted) = must {
            prop_assert_eq!(retry.is_none(), granted, "a retry of {:?} of {} at {}", verb, n, now);
        }
        pair.ideal.take(now, 0, pair.bench.look()).map_err(TestCaseError::fail)?;
        let promised = |wait: &u64| {
            pair.bench.plan.is_none() || pair.ideal.is_straight_until(now, now.saturating_add(*wait))
        };
        refused = retry.filter(promised).map(|wait| (wait, verb, n, max_wait));
    }
    Ok(())
}

/// Room for a quota of the same period that is so much faster and larger; and a bound on debt, in parts of the burst.
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

fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1_u64 << 45, 0..1_u64 << 61]
}

fn steps() -> impl Strategy<Value = Vec<(Move, Verb, f64, usize)>> {
    prop::collection::vec((moves(), verbs(), 0.0..1.0_f64, 0..4_usize), 1..120)
}

fn initials() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![3 => Just(None), 1 => (0..20_u64).prop_map(Some)]
}

proptest! {
    #![proptest_config(super::cases(6_000))]

    #[test]
    fn any_bucket_keeps_to_the_ideal_under_all_verbs(
        (tokens, nanos, burst) in quotas(),
        rooms in rooms(),
        initial in initials(),
        start in starts(),
        steps in steps(),
    ) {
        let quota = (tokens.min(1 << 44), nanos, burst);
        if let Some(pair) = Pair::new(quota, room_of(rooms, quota), initial, start) {
            walk(pair, &steps)?;
        }
    }

    /// Made before changes and after them, beside the own quota, on readings that are behind by jitter and older.
    #[test]
    fn any_bucket_keeps_to_the_ideal_under_plans(
        (tokens, nanos, burst) in quotas(),
        rooms in rooms(),
        initial in initials(),
        start in starts(),
        steps in steps(),
    ) {
        // The reference counts a plan's rate times a level.
        let quota = (tokens.min(1 << 30), nanos.min(1 << 50), burst.min(1 << 30));
        if let Some(pair) = Pair::new(quota, room_of(rooms, quota), initial, start) {
            walk(Pair { plans: Some(Vec::new()), ..pair }, &steps)?;
        }
    }

    #[test]
    fn the_buckets_of_the_table_keep_to_the_ideal_under_all_verbs(
        row in 0..TABLE.len() + EXTREMES.len(),
        rooms in rooms(),
        initial in initials(),
        start in starts(),
        steps in steps(),
    ) {
        let quota = TABLE.iter().map(|(quota, _)| *quota).chain(EXTREMES).nth(row).unwrap();
        if let Some(pair) = Pair::new(quota, room_of(rooms, quota), initial, start) {
            walk(pair, &steps)?;
        }
    }
}

/// Nothing is due at once, whoever waits; dropping it gives nothing.
#[test]
fn a_reservation_of_nothing_is_due_at_once() {
    let second = 1_000_000_000;
    let quota = Quota::per_second(1).burst(5);
    let bench = Bench::new(quota, quota.layout(), None, second);
    assert!(bench.reserve(5, None).is_ok() && bench.reserve(3, None).is_ok());
    let before = bench.bucket.state();
    let (_, receipt, delay) = bench.reserve(0, None).unwrap();
    assert_eq!(delay, 0);
    bench.settle(receipt.plan, Settle::Cancel(&receipt));
    assert_eq!(bench.bucket.state(), before);
    assert_ne!(before, State::FULL);
}
