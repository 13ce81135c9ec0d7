// promise: law, never-late
//! The pure step of a take against the ideal bucket: over random sequences, and at its edges.

use std::time::Duration;

use proptest::prelude::*;

use super::reference::{Answer, Ideal};
use super::terms::{Asked, EXTREMES, TABLE, compile, quotas};
use crate::word::decision::{Denied, Granted};
use crate::word::state::State;
use crate::word::terms::{Reading, Terms};
use crate::word::verb::Take;

/// A bucket without an atomic: the state, and the step.
#[derive(Clone, Copy)]
struct Plain {
    terms: Terms,
    state: State,
}

impl Plain {
    fn new(quota: Asked) -> Plain {
        Plain { terms: compile(quota).unwrap(), state: State::FULL }
    }

    fn reading(&self, nanos: u64) -> Reading {
        Reading::new(self.terms, nanos)
    }

    fn take(&mut self, now: u64, n: u64) -> Answer {
        let reading = self.reading(now);
        let (outcome, next) = Take::Exactly(n).apply(self.state, &reading);
        assert!(!outcome.granted || n == 0 || next.is_some_and(|next| next != self.state), "a grant commits");
        assert!(n > 0 || next.is_none(), "taking nothing commits nothing");
        if let Some(next) = next {
            assert!(next.is_level());
            self.state = next;
        }
        answer(Take::Exactly(n).decision((outcome, reading)))
    }
}

pub(super) fn nanos(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos()).unwrap()
}

/// A decision in the terms of the reference.
pub(super) fn answer(decision: Result<Granted, Denied>) -> Answer {
    match decision {
        Ok(granted) => Answer {
            granted: true,
            remaining: granted.remaining(),
            retry_after: None,
            reset_after: Some(nanos(granted.reset_after())),
        },
        Err(denied) => Answer {
            granted: false,
            remaining: denied.remaining(),
            retry_after: denied.retry_after().map(nanos),
            reset_after: None,
        },
    }
}

/// How the clock moves before a step, as a part of the time to fill the bucket or of a token's.
#[derive(Clone, Debug)]
pub(super) enum Move {
    Still,
    Nanos(u64),
    Tokens(f64),
    Fills(f64),
    Years(f64),
    Stale(f64),
    Back(f64),
    /// Exactly when the last refusal said, or a nanosecond before.
    Retry {
        early: bool,
    },
}

pub(super) fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Still),
        2 => (0..2_000_u64).prop_map(Move::Nanos),
        6 => (0.0..3.0).prop_map(Move::Tokens),
        2 => (0.0..2.0).prop_map(Move::Fills),
        1 => (0.0..0.4).prop_map(Move::Years),
        3 => (0.0..1.0).prop_map(Move::Stale),
        1 => (0.0..1.0).prop_map(Move::Back),
        4 => any::<bool>().prop_map(|early| Move::Retry { early }),
    ]
}

fn walk(quota: Asked, start: u64, steps: &[(Move, f64)]) -> Result<(), TestCaseError> {
    let (tokens, nanos, burst) = quota;
    let token = nanos as f64 / tokens as f64;
    let mut bucket = Plain::new(quota);
    let mut ideal = Ideal::new(tokens, nanos, burst);
    let jitter = ideal.jitter();
    let (mut now, mut retry) = (start, None);
    for (step, part) in steps {
        let mut must = None;
        now = match *step {
            Move::Still => now,
            Move::Nanos(by) => now + by,
            Move::Tokens(by) => now.saturating_add((by * token) as u64),
            Move::Fills(by) => now.saturating_add((by * token * burst as f64) as u64),
            Move::Years(by) => now.saturating_add((by * 3.15e16) as u64),
            Move::Stale(by) => now.saturating_sub((by * jitter as f64) as u64),
            Move::Back(by) => now.saturating_sub(jitter).saturating_sub((by * 3.6e12) as u64),
            Move::Retry { early } => match retry {
                Some((wait, n)) if wait > 0 => {
                    must = Some((n, !early));
                    now.saturating_add(wait - u64::from(early))
                }
                _ => now,
            },
        };
        if now >= 1 << 62 {
            break;
        }
        // Mostly a few tokens, sometimes about the burst, sometimes none or too many.
        let n = match (*part * 10.0) as u64 {
            0 => (part * 20.0) as u64,
            1 => (part * burst as f64 * 5.0) as u64,
            _ => 1 + (part * burst.min(9) as f64) as u64 / 2,
        };
        let n = must.map_or(n, |(n, _)| n);
        let answer = bucket.take(now, n);
        if let Some((_, granted)) = must {
            prop_assert_eq!(answer.granted, granted, "retry_after of {:?} at {}", retry, now);
        }
        ideal.take(now, n, answer).map_err(TestCaseError::fail)?;
        retry = answer.retry_after.map(|wait| (wait, n));
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::cases(4_000))]

    #[test]
    fn any_bucket_keeps_to_the_ideal(
        (tokens, nanos, burst) in quotas(),
        start in prop_oneof![Just(0), 0..1_u64 << 50, 0..1_u64 << 61],
        steps in prop::collection::vec((moves(), 0.0..1.0_f64), 1..120),
    ) {
        let quota = (tokens.min(1 << 44), nanos, burst);
        if compile(quota).is_ok() {
            walk(quota, start, &steps)?;
        }
    }

    #[test]
    fn the_buckets_of_the_table_keep_to_the_ideal(
        row in 0..TABLE.len() + EXTREMES.len(),
        start in prop_oneof![Just(0), 0..1_u64 << 50],
        steps in prop::collection::vec((moves(), 0.0..1.0_f64), 1..120),
    ) {
        let quotas: Vec<_> = TABLE.iter().map(|(quota, _)| *quota).chain(EXTREMES).collect();
        walk(quotas[row], start, &steps)?;
    }
}

/// `retry_after` of every refusal, from every level: exact both ways.
#[test]
fn retry_after_is_exact_both_ways() {
    let quotas = TABLE.iter().map(|(quota, _)| *quota).chain(EXTREMES);
    let mut waits = 0;
    for quota in quotas {
        let (tokens, nanos, burst) = quota;
        for start in [0, 1, 999_999_937, (1 << 45) + 12_345, (1 << 56) + 1] {
            for taken in [1, 2, burst / 3, burst / 2, burst - 1, burst] {
                for n in [1, 2, burst / 3 + 1, burst / 2 + 1, burst - 1, burst] {
                    let mut bucket = Plain::new(quota);
                    if taken == 0 || n == 0 || taken > burst || n > burst {
                        continue;
                    }
                    assert!(bucket.take(start, taken).granted);
                    // Somewhere within a token's time, so that ticks are not met at their edge.
                    let now = start + nanos / tokens / 3;
                    let answer = bucket.take(now, n);
                    let Some(wait) = answer.retry_after.filter(|_| !answer.granted) else { continue };
                    waits += 1;
                    let (mut early, mut due) = (bucket, bucket);
                    assert!(!early.take(now + wait - 1, n).granted, "{quota:?} {now} + {wait} - 1, n = {n}");
                    assert!(due.take(now + wait, n).granted, "{quota:?} {now} + {wait}, n = {n}");
                }
            }
        }
    }
    assert!(waits > 1_000, "{waits} waits tried");
}

/// After an idle time of a whole range the stamp has wrapped: the bucket is credited too little, and is right
/// again once it was full.
#[test]
fn a_wrap_of_the_stamp_credits_nothing_extra() {
    let mut wraps = 0;
    for (quota, _) in TABLE {
        let (tokens, nanos, burst) = quota;
        let mut bucket = Plain::new(quota);
        let terms = bucket.terms;
        let range = terms.ticks.nanos_until(0, terms.mask + 1);
        if range >= 1 << 60 {
            continue;
        }
        for (turns, over) in [(1, 0), (1, 1), (1, nanos / tokens + 1), (2, 0), (2, nanos / 2), (3, 17)] {
            assert!(bucket.take(5, burst).granted);
            let now = 5 + turns * range + over;
            let credit = u128::from(over + nanos / tokens) * u128::from(tokens) / u128::from(nanos);
            let tick = 1 << terms.widths.scale;
            assert!(u128::from(bucket.take(now, 0).remaining) <= credit + tick, "{quota:?} {turns} {over}");
            // Past every window, and the time to fill.
            let fill = (u128::from(burst) * u128::from(nanos) / u128::from(tokens)) as u64;
            let now = now + fill + 4_000_000_000_000 + nanos / tokens;
            assert!(bucket.take(now, burst).granted, "{quota:?} {turns} {over}");
            assert!(!bucket.take(now, 1).granted);
            bucket = Plain::new(quota);
            wraps += 1;
        }
    }
    assert!(wraps > 40, "{wraps} wraps tried");
}

#[test]
fn a_bucket_is_one_word() {
    assert_eq!(size_of::<crate::bucket::atomic::Bucket>(), 8);
}

#[test]
fn a_clock_that_stands_still_grants_the_burst_and_no_more() {
    for burst in [1, 2, 5, 1_200] {
        let mut bucket = Plain::new((100, 1_000_000_000, burst));
        let granted = (0..10_000).filter(|_| bucket.take(77, 1).granted).count();
        assert_eq!(granted as u64, burst);
    }
}

/// The law's worst offender: a reading behind the stamp must neither refill nor move the stamp back.
#[test]
fn a_stale_reading_never_refills() {
    let mut bucket = Plain::new((1_000, 1_000_000_000, 5));
    let second = 1_000_000_000;
    assert!(bucket.take(10 * second, 5).granted);
    for stale in [1, 3_000, 1_000_000, second, 3 * second] {
        assert!(!bucket.take(10 * second - stale, 1).granted, "{stale} ns behind");
    }
    // A grant on a stale reading keeps the stamp: what was earned up to it is not earned again.
    assert!(bucket.take(10 * second + 2_000_000, 1).granted);
    assert!(bucket.take(9 * second, 1).granted);
    assert!(!bucket.take(10 * second + 2_000_000, 1).granted);
}

/// A clock that was set back heals at once, and earns nothing by it.
#[test]
fn a_jump_back_heals_at_once_and_mints_nothing() {
    let second = 1_000_000_000;
    let mut bucket = Plain::new((10, second, 5));
    assert!(bucket.take(1_000 * second, 5).granted);
    // Ten minutes back: refused, but the stamp goes with the clock.
    assert!(!bucket.take(400 * second, 1).granted);
    assert!(bucket.take(400 * second + second / 10, 1).granted);
    assert!(!bucket.take(400 * second + second / 10, 1).granted);
}

/// In whole ticks the windows of slow quotas would round to nothing; they are 2 ticks at least.
#[test]
fn a_slow_quota_has_its_jitter_window() {
    let year = 365 * 86_400 * 1_000_000_000_u64;
    let mut bucket = Plain::new((1, year, 1));
    assert!(bucket.take(3 * year, 1).granted);
    let tick = bucket.terms.ticks.nanos_until(3 * year, 1);
    for behind in [1, tick, tick + 1] {
        assert!(!bucket.take(3 * year - behind, 1).granted, "{behind} ns behind");
    }
}

#[test]
fn a_bucket_is_evictable_once_full_for_the_margin() {
    let second = 1_000_000_000_u64;
    let mut bucket = Plain::new((10, second, 5));
    assert!(bucket.take(100 * second, 5).granted);
    let in_ticks = |now| bucket.state.evictable_in(&bucket.terms, bucket.terms.ticks.tick(now), 0);
    // Full after half a second, and that for two seconds.
    assert!(in_ticks(100 * second) > 0);
    assert!(in_ticks(100 * second + second / 2) > 0);
    assert!(in_ticks(102 * second + second / 2) > 0);
    let due = 100 * second + bucket.terms.ticks.nanos_until(100 * second, in_ticks(100 * second));
    assert!(in_ticks(due - 1) > 0);
    assert_eq!(in_ticks(due), 0);
    assert!((102 * second + second / 2..103 * second).contains(&due));
    // Never on a reading from before the stamp, nor by a clock that was set back.
    assert!(in_ticks(99 * second) > 0);
    assert!(in_ticks(second) > 0);
    assert_eq!(State::FULL.evictable_in(&bucket.terms, 0, 0), 0);
}
