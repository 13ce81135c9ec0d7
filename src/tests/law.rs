// promise: law
//! The law over all verbs: what is granted in any interval, reservations counted when they are due.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::state::Move;
use super::terms::{Asked, TABLE, numbers};
use super::verbs::{Bench, moved, room_of, rooms};
use crate::bucket::receipt::{Receipt, Settle};
use crate::quota::layout::{Layout, Widths};
use crate::quota::rate::Quota;
use crate::word::verb::Take;

#[derive(Clone, Debug)]
enum Verb {
    Take,
    TakeUpTo,
    Reserve(Option<f64>),
    Charge,
    Refund,
    /// Drops a reservation that was made so many before.
    Drop(usize),
    Undo(usize),
}

fn steps(refunds: u32) -> impl Strategy<Value = Vec<(Move, Verb, f64)>> {
    let moves = prop_oneof![
        3 => Just(Move::Still),
        2 => (0..2_000_u64).prop_map(Move::Nanos),
        6 => (0.0..3.0).prop_map(Move::Tokens),
        2 => (0.0..2.0).prop_map(Move::Fills),
        2 => (0.0..0.9).prop_map(Move::Stale),
    ];
    let max_wait = prop_oneof![Just(None), (0.0..9.0).prop_map(Some)];
    let verbs = prop_oneof![
        6 => Just(Verb::Take),
        2 => Just(Verb::TakeUpTo),
        8 => max_wait.prop_map(Verb::Reserve),
        1 => Just(Verb::Charge),
        refunds => Just(Verb::Refund),
        4 => (0..3_usize).prop_map(Verb::Drop),
        // What is refunded in between may have taken the place of what is undone.
        u32::from(refunds == 0) => (0..2_usize).prop_map(Verb::Undo),
    ];
    prop::collection::vec((moves, verbs, 0.0..1.0_f64), 1..160)
}

/// So many tokens, taken at one time and due at another.
#[derive(Clone, Copy, Debug)]
struct Event {
    made: u64,
    due: u64,
    tokens: u64,
    receipt: Receipt,
}

/// What one bucket has granted, and what was refunded to it.
struct Ledger {
    quota: Asked,
    widths: Widths,
    granted: Vec<Event>,
    refunded: Vec<(u64, u64)>,
}

impl Ledger {
    /// At most `burst + rate * T` and what was refunded, one tick, and the nanosecond that a delay is rounded up to.
    ///
    /// What is promised was earned, or refunded, after the promise before it was made: refunds count from the earliest
    /// making of what is due in the interval.
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

fn run(quota: Asked, layout: Layout, start: u64, steps: &[(Move, Verb, f64)]) -> TestCaseResult {
    let (tokens, period, burst) = quota;
    let Ok(public) = Quota::try_per(tokens, Duration::from_nanos(period), burst) else { return Ok(()) };
    let mut bench = Bench::new(public, layout, None, start);
    let token = period as f64 / tokens as f64;
    let mut ledger = Ledger { quota, widths: layout.widths, granted: vec![], refunded: vec![] };
    // The latest reading, and the latest that was committed.
    let (mut latest, mut stamped) = (start, 0);
    // When tokens last came back: whichever way, and by an undo.
    let (mut returned, mut undone) = (None, None);
    for (by, verb, part) in steps {
        // Stale readings are behind the latest, not behind each other.
        let from = if matches!(by, Move::Stale(_)) { latest } else { bench.now.max(latest) };
        let now = moved(by, from, token, burst, 3_000_000_000);
        if now >= 1 << 48 {
            break;
        }
        bench.go_to(now);
        latest = latest.max(now);
        let before = bench.bucket.state();
        let stamp = now.max(stamped);
        let n = 1 + if *part < 0.2 { (part * 5.0 * burst as f64) as u64 } else { (part * 3.0) as u64 };
        let event = |tokens, receipt, due| Event { made: stamp, due: stamp.max(due), tokens, receipt };
        match *verb {
            Verb::Take => {
                if let (Ok(_), receipt) = bench.take(Take::Exactly(n)) {
                    ledger.granted.push(event(n, receipt, now));
                }
            }
            Verb::TakeUpTo => {
                if let (Ok(granted), receipt) = bench.take(Take::UpTo(n)) {
                    ledger.granted.push(event(granted.tokens(), receipt, now));
                }
            }
            Verb::Reserve(max_wait) => {
                let max_wait = max_wait.map(|max_wait| (max_wait * token) as u64);
                if let Ok((_, receipt, delay)) = bench.reserve(n, max_wait) {
                    prop_assert!(max_wait.is_none_or(|max_wait| delay <= max_wait));
                    ledger.granted.push(event(n, receipt, now + delay));
                }
            }
            Verb::Charge => {
                // Each token is due when it is earned.
                for _ in 0..n.min(9) {
                    if let (Ok(granted), receipt) = bench.take(Take::OnCredit(1)) {
                        ledger.granted.push(event(1, receipt, now + bench.delay(receipt, granted)));
                    }
                }
            }
            Verb::Refund => {
                bench.settle(None, Settle::Refund(n));
                ledger.refunded.push((stamp, n));
                returned = Some(stamp);
            }
            Verb::Drop(back) => {
                let Some(index) = ledger.granted.len().checked_sub(back + 1) else { continue };
                let receipt = ledger.granted[index].receipt;
                let last = bench.stands(&receipt);
                bench.settle(receipt.plan, Settle::Cancel(&receipt));
                // What does not come back counts as granted, used or not.
                // After tokens came back it may be the last again though others took: then it is a refund.
                let Event { made, tokens, .. } = ledger.granted[index];
                let refunded = ledger.refunded.iter().any(|(at, _)| *at >= made);
                let again = refunded || undone.is_some_and(|at| at >= made);
                if last {
                    returned = Some(stamp);
                }
                if last && again {
                    ledger.refunded.push((stamp, tokens));
                } else if last {
                    ledger.granted.remove(index);
                }
            }
            Verb::Undo(back) => {
                let Some(index) = ledger.granted.len().checked_sub(back + 1) else { continue };
                // Takes are undone, not promises.
                let Event { made, due, receipt, tokens } = ledger.granted[index];
                if due > made {
                    continue;
                }
                // Others may wait who were promised their times on top of it: then it counts as granted.
                let lost = bench.promised_on(&receipt);
                bench.settle(receipt.plan, Settle::Undo(&receipt));
                if lost {
                    prop_assert_eq!(bench.bucket.state(), before);
                    continue;
                }
                // What came back in between was not there before it: then it is a refund.
                undone = Some(stamp);
                if returned.replace(stamp).is_some_and(|at| at >= made) {
                    ledger.refunded.push((stamp, tokens));
                } else {
                    ledger.granted.remove(index);
                }
            }
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
    #![proptest_config(super::cases(4_000))]

    #[test]
    fn no_interval_has_more_than_the_law_grants(
        quota in quotas(),
        debt in rooms(),
        start in 0..1_u64 << 45,
        steps in steps(0),
    ) {
        // Room for other quotas is of no use here, but for other layouts.
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
