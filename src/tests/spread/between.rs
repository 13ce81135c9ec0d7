//! A spread bucket beside two plain ones.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::hot::Hot;
use crate::bucket::live_terms::Change;
use crate::bucket::receipt::Settle;
use crate::rule::rate::Quota;
use crate::word::decision::Reason;
use crate::word::verb::{Reserve, Take};

/// Returns `parts` quarters of `burst`, rounded up.
pub(super) fn part(burst: u64, parts: u64) -> u64 {
    burst - burst * (4 - parts) / 4
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    /// Takes of some tokens each: the tokens of one take, and the number of takes.
    Take(u64, u64),
    UpTo(u64),
    /// Some tokens, if a part of the burst stays, in percent.
    Above(u64, u8),
    Refund(u64),
    Reserve(u64),
    Charge(u64),
    /// A new burst, in eighths of the first one.
    SetBurst(u64),
}

pub(super) fn verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        12 => (1..150_u64).prop_map(|times| Verb::Take(1, times)),
        3 => (1..9_u64, 1..60_u64).prop_map(|(n, times)| Verb::Take(n, times)),
        1 => (1..3_000_u64).prop_map(|n| Verb::Take(n, 1)),
        1 => (1..400_u64).prop_map(Verb::UpTo),
        2 => (1..400_u64, 0..101_u8).prop_map(|(n, percent)| Verb::Above(n, percent)),
        2 => (1..100_u64).prop_map(Verb::Refund),
        1 => (1..100_u64).prop_map(Verb::Reserve),
        1 => (1..40_u64).prop_map(Verb::Charge),
        1 => (1..9_u64).prop_map(Verb::SetBurst),
    ]
}

/// Returns nanoseconds between two verbs.
pub(super) fn gaps() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0), 4 => 0..2_000_u64, 2 => 0..100_000_u64, 2 => 0..5_000_000_u64, 1 => 0..2_000_000_000_u64]
}

pub(super) fn quotas() -> impl Strategy<Value = Quota> {
    let rates = prop_oneof![Just(10), Just(1_000), Just(100_000), Just(10_000_000), Just(777_777_777)];
    (rates, 1..3_000_u64).prop_map(|(rate, burst)| Quota::per_second(rate).burst(burst))
}

pub(super) fn keeps_between(quota: Quota, cells: usize, steps: &[(u64, usize, Verb)]) -> TestCaseResult {
    let hot = Hot::new(quota, cells);
    let (most, least) = (hot.plain(4), hot.plain(3));
    let slack = Cell::new(0);
    let granted = |n: u64, credit: bool| {
        match credit {
            // The larger plain bucket owes the same tokens as the spread one.
            true => assert!(most.ask().n(n).reserve().is_ok_and(|reserved| reserved.commit().tokens() == n)),
            false => assert!(most.try_acquire_n(n).is_ok(), "{n} were not there"),
        }
        // The smaller plain bucket may have fewer tokens, and owes the others. Tokens over its
        // bound on debt are let go, in whole tokens.
        if least.ask().n(0).hold().unwrap().settle(n) > 0 {
            slack.set(1);
        }
    };
    for (gap, own, verb) in steps {
        hot.advance(*gap);
        let mut refused = None;
        match *verb {
            Verb::Take(n, times) => {
                for _ in 0..times {
                    match hot.take(*own, n) {
                        Ok(_) => granted(n, false),
                        Err(denied) => refused = Some((n, denied)),
                    }
                }
            }
            Verb::UpTo(n) => {
                if let Ok((some, _)) = hot.run(Take::UpTo(n)) {
                    granted(some.tokens(), false);
                }
            }
            Verb::Above(n, percent) => {
                // The tokens on lease count as kept ones.
                let kept = (hot.engine.source.quota().capacity() * u64::from(percent)).div_ceil(100);
                match hot.run(Take::Above { n, keep: percent }) {
                    Ok(_) => {
                        assert!(most.peek().remaining() >= n + kept, "a kept token was taken");
                        granted(n, false);
                    }
                    Err(_) => {
                        let few = least.peek().remaining() <= n + kept + slack.get();
                        assert!(few, "{n} were there above {kept}, {:?}", least.peek());
                    }
                }
            }
            Verb::Refund(n) => {
                hot.spread().settle(Settle::Refund(n));
                most.refund(n);
                least.refund(n);
            }
            Verb::Reserve(n) => {
                if hot.run(Take::Reserve(Reserve { n, keep: 0, max_wait: u64::MAX })).is_ok() {
                    granted(n, true);
                }
            }
            Verb::Charge(n) => {
                let taken = hot.spread().settle(Settle::Charge(n));
                most.ask().n(0).hold().unwrap().settle(taken);
                slack.set(slack.get().max(least.ask().n(0).hold().unwrap().settle(taken).min(1)));
            }
            Verb::SetBurst(parts) => {
                let burst = (quota.capacity() * parts / 8).max(1);
                // A plain bucket counts the tokens earned, and drops the tokens that no longer have
                // room, at its next use.
                let touch = || {
                    if hot.run(Take::Exactly(1)).is_ok() {
                        hot.spread().settle(Settle::Refund(1));
                    }
                    for plain in [&most, &least] {
                        if plain.try_acquire().is_ok() {
                            plain.refund(1);
                        }
                    }
                };
                touch();
                if hot.engine.source.set(quota.burst(burst), &hot.clock).unwrap() == Change::LowerBurst {
                    hot.spread().recall_after_a_lower_burst();
                }
                most.set_rule(quota.burst(burst)).unwrap();
                least.set_rule(quota.burst(part(burst, 3))).unwrap();
                touch();
            }
        }
        let (left, high) = (hot.remaining(), most.peek().remaining());
        let low = least.peek().remaining().saturating_sub(slack.get());
        prop_assert!(low <= left && left <= high, "{} are left, not {} to {}", left, low, high);
        if let Some((n, denied)) = refused {
            prop_assert!(low < n, "{} were refused of {}", n, low);
            // A refusal is exact: no token is at hand in a cell beside it. (A take that is never
            // granted recalls no lease.)
            prop_assert!(hot.spread().at_hand() == 0 || denied.reason() == Reason::TooMany);
            let words = hot.words();
            let (mut again, wait) = (hot.take(*own, n), denied.retry_after());
            prop_assert_eq!((again.is_err(), hot.words()), (true, words));
            if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                hot.mock.advance(wait - Duration::from_nanos(1));
                again = hot.take(*own, n);
                prop_assert!(again.is_err(), "{:?} is not the least wait", wait);
                hot.advance(1);
                prop_assert!(hot.take(*own, n).is_ok(), "{:?} is too early", wait);
                granted(n, false);
            }
        }
    }
    Ok(())
}
