// promise: law
//! The law over all verbs: a bound on the tokens granted in any interval. Reserved tokens count at
//! the time when they are due.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate_testing::cases;
use tollgate_testing::reference::steps::{Amount, Move, Scale, Verb, Which, nanos};
use tollgate_testing::reference::strategies::{Step, own, reserves};
use tollgate_testing::reference::{Asked, Ideal};

use super::reference::subject::{Decision, Made, Returned, Subject};
use super::terms::{TABLE, numbers, unit_of};
use super::verbs::{Bench, reservation, room_of, rooms};
use crate::bucket::receipt::Receipt;
use crate::rule::layout::{Layout, Widths};
use crate::rule::rate::Quota;
use crate::word::verb::Take;

fn steps(refunds: u32) -> impl Strategy<Value = Vec<Step>> {
    let moves = prop_oneof![
        3 => Just(Move::Still),
        2 => (0..2_000_u16).prop_map(Move::Nanos),
        6 => (0..3_u32 << 16).prop_map(Move::Tokens),
        2 => (0..2_u32 << 16).prop_map(Move::Fills),
        2 => (0..230_u8).prop_map(Move::Stale),
    ];
    let amounts =
        || prop_oneof![4 => (1..4_u8).prop_map(Amount::Few), 1 => (1..=32_u8).prop_map(Amount::Part)];
    let verbs = prop_oneof![
        6 => amounts().prop_map(Verb::Take),
        2 => amounts().prop_map(Verb::UpTo),
        8 => reserves(amounts()),
        1 => amounts().prop_map(Verb::Charge),
        refunds => amounts().prop_map(Verb::Refund),
        4 => (0..3_u8).prop_map(|back| Verb::Drop(Which::Last(back))),
        // Takes are undone only without refunds: a refund in between may have taken the room of the
        // undone tokens.
        u32::from(refunds == 0) => (0..2_u8).prop_map(|back| Verb::Undo(Which::Last(back))),
    ];
    tollgate_testing::reference::strategies::steps(moves, own(), verbs, 160)
}

/// Tokens taken at one time and due at another.
#[derive(Clone, Copy, Debug)]
struct Event {
    made: u64,
    due: u64,
    tokens: u64,
    receipt: Receipt,
}

/// The grants of one bucket, and the refunds to it.
struct Ledger {
    quota: Asked,
    widths: Widths,
    granted: Vec<Event>,
    refunded: Vec<(u64, u64)>,
}

impl Ledger {
    /// Checks the law: an interval has at most `burst + rate * T` tokens, the tokens refunded, and
    /// one tick's worth. A nanosecond is added, because a delay is rounded up.
    ///
    /// Promised tokens were earned, or refunded, after the promise before was made. So refunds
    /// count from the earliest promise of the tokens that are due in the interval.
    fn is_within_the_law(&mut self) -> TestCaseResult {
        let (tokens, nanos, burst) = self.quota;
        let (tokens, nanos) = (u128::from(tokens), u128::from(nanos));
        let tick = ((nanos << self.widths.scale) >> self.widths.fraction) + 1;
        self.granted.sort_by_key(|event| event.due);
        for (first, from) in self.granted.iter().enumerate() {
            let (mut sum, mut made) = (0, from.made);
            for to in &self.granted[first..] {
                sum += u128::from(to.tokens);
                made = made.min(to.made);
                let refunds = self.refunded.iter().filter(|(at, _)| (made..=to.due).contains(at));
                let refunded: u128 = refunds.map(|(_, n)| u128::from(*n)).sum();
                let span = u128::from(to.due - from.due) + 1;
                let most = (u128::from(burst) + refunded) * nanos + span * tokens + tick;
                prop_assert!(
                    sum * nanos <= most,
                    "{:?}: {} from {} to {} ns, {} refunded since {}",
                    self.quota,
                    sum,
                    from.due,
                    to.due,
                    refunded,
                    made
                );
            }
        }
        Ok(())
    }
}

fn run(quota: Asked, layout: Layout, start: u64, steps: &[Step]) -> TestCaseResult {
    let (tokens, period, burst) = quota;
    let Ok(public) = Quota::checked(tokens, Duration::from_nanos(period), burst) else { return Ok(()) };
    let unit = unit_of(layout);
    let scale = Scale::new(quota, unit, &Ideal::in_unit(tokens, period, burst, unit));
    let (bench, mut time) = Bench::new(public, layout, None, start);
    let mut ledger = Ledger { quota, widths: layout.widths, granted: vec![], refunded: vec![] };
    // The latest reading, and the latest one that was committed.
    let (mut latest, mut stamped) = (start, 0);
    // The last times at which tokens came back: in any way, and by an undo.
    let (mut returned, mut undone) = (None, None);
    for (by, _, verb) in steps {
        // A stale reading is behind the latest reading, not behind another stale one.
        let now = scale.moved(latest, *by);
        if now >= 1 << 48 {
            break;
        }
        time.set(now);
        latest = latest.max(now);
        let before = bench.bucket.state();
        let stamp = now.max(stamped);
        let event = |tokens, receipt, due| Event { made: stamp, due: stamp.max(due), tokens, receipt };
        let took = |(decision, receipt): (Decision, Option<Receipt>)| {
            decision.ok().zip(receipt).map(|(granted, receipt)| event(granted.tokens(), receipt, now))
        };
        let reserve = |n, patience: Option<u64>| {
            let Made { delay, kept, .. } = bench.reserve(n, 0, patience, None).ok()?;
            assert!(patience.is_none_or(|patience| nanos(delay) <= patience));
            kept.map(|receipt| event(n, receipt, now + nanos(delay)))
        };
        let n_of = |n: Amount| n.of(burst).max(1);
        match *verb {
            Verb::Take(n) => ledger.granted.extend(took(bench.take(n_of(n), None))),
            Verb::UpTo(n) => ledger.granted.extend(took(bench.up_to(n_of(n), 0, None))),
            Verb::Reserve(n) => ledger.granted.extend(reserve(n_of(n), None)),
            Verb::ReserveWithin(n, by) => {
                ledger.granted.extend(reserve(n_of(n), Some(scale.time(by.into(), 256))));
            }
            Verb::Charge(n) => {
                // Each token is due when it is earned.
                for _ in 0..n_of(n).min(9) {
                    if let (Ok(granted), Some(receipt)) = bench.run_now(Take::OnCredit(1), None) {
                        let delay = reservation(receipt, granted).delay();
                        ledger.granted.push(event(1, receipt, now + nanos(delay)));
                    }
                }
            }
            Verb::Refund(n) => {
                bench.refund(n_of(n), None);
                ledger.refunded.push((stamp, n_of(n)));
                returned = Some(stamp);
            }
            Verb::Drop(Which::Last(back)) => {
                let Some(index) = ledger.granted.len().checked_sub(usize::from(back) + 1) else { continue };
                // Tokens that do not come back count as granted, used or not.
                let Event { made, tokens, receipt, .. } = ledger.granted[index];
                let Returned::Seen { last: true, .. } = bench.give_back(receipt) else { continue };
                returned = Some(stamp);
                // Once tokens have come back, a take may be the last in line again although other
                // callers took later. Its tokens then count as a refund.
                let refunded = ledger.refunded.iter().any(|(at, _)| *at >= made);
                if refunded || undone.is_some_and(|at| at >= made) {
                    ledger.refunded.push((stamp, tokens));
                } else {
                    ledger.granted.remove(index);
                }
            }
            Verb::Undo(Which::Last(back)) => {
                let Some(index) = ledger.granted.len().checked_sub(usize::from(back) + 1) else { continue };
                // Only takes are undone, and no promises.
                let Event { made, due, receipt, tokens } = ledger.granted[index];
                if due > made {
                    continue;
                }
                // Later callers may wait for times that were promised on top of this take. The take
                // then counts as granted.
                let (void, committed) = bench.undo(receipt);
                prop_assert!(!(void && committed));
                if void {
                    continue;
                }
                // Tokens that came back in between were not there before the take. The undo then
                // counts as a refund.
                undone = Some(stamp);
                if returned.replace(stamp).is_some_and(|at| at >= made) {
                    ledger.refunded.push((stamp, tokens));
                } else {
                    ledger.granted.remove(index);
                }
            }
            _ => unreachable!("no such step is made"),
        }
        if bench.bucket.state() != before {
            stamped = stamp;
        }
    }
    ledger.is_within_the_law()
}

fn quotas() -> impl Strategy<Value = Asked> {
    let table = (0..TABLE.len()).prop_map(|row| TABLE[row].0);
    let any = (1..2_000_u64, 1..5_000_000_000_u64, 1..50_u64);
    prop_oneof![table, any]
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn no_interval_has_more_than_the_law_grants(
        quota in quotas(),
        debt in rooms(),
        start in 0..1_u64 << 45,
        steps in steps(0),
    ) {
        // Room for other quotas only serves to get other layouts.
        if let Ok(layout) = Layout::of(numbers(quota), room_of(debt, quota)) {
            run(quota, layout, start, &steps)?;
        }
    }

    #[test]
    fn what_is_refunded_may_be_granted_again_and_no_more(
        quota in quotas(),
        debt in rooms(),
        start in 0..1_u64 << 45,
        steps in steps(3),
    ) {
        if let Ok(layout) = Layout::of(numbers(quota), room_of(debt, quota)) {
            run(quota, layout, start, &steps)?;
        }
    }
}
