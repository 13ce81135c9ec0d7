// promise: law, never-late
//! The pure step of a take, at its edges. Random sequences of steps are in `verbs.rs`.

use tollgate_testing::reference::{Answer, Asked};

use super::reference::answers::answer;
use super::terms::{EXTREMES, TABLE, compile};
use crate::word::state::{Reading, State, TakeOutcome};
use crate::word::terms::Terms;
use crate::word::verb::Take;

/// A bucket without an atomic: the terms and the state.
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

/// A refused take is granted after its `retry_after`, and refused a nanosecond earlier, from every
/// level.
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
                    // A third of a token's time later: the readings are not all at the edge of a
                    // tick.
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

/// After an idle time of a whole range the stamp has wrapped. The bucket is then credited too
/// little, and is right again once it has been full.
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
            // Later than every window and the time to fill.
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

/// A reading behind the stamp must neither refill the bucket nor move the stamp back. No fault
/// breaks the law by more than this one.
#[test]
fn a_stale_reading_never_refills() {
    let mut bucket = Plain::new((1_000, 1_000_000_000, 5));
    let second = 1_000_000_000;
    assert!(bucket.take(10 * second, 5).granted);
    for stale in [1, 3_000, 1_000_000, second, 3 * second] {
        assert!(!bucket.take(10 * second - stale, 1).granted, "{stale} ns behind");
    }
    // A grant on a stale reading keeps the stamp, so the tokens earned until that stamp are not
    // earned again.
    assert!(bucket.take(10 * second + 2_000_000, 1).granted);
    assert!(bucket.take(9 * second, 1).granted);
    assert!(!bucket.take(10 * second + 2_000_000, 1).granted);
}

/// After its clock was set back, a bucket recovers at once, and earns nothing by the jump.
#[test]
fn a_jump_back_heals_at_once_and_mints_nothing() {
    let second = 1_000_000_000;
    let mut bucket = Plain::new((10, second, 5));
    assert!(bucket.take(1_000 * second, 5).granted);
    // Ten minutes back, the take is refused, but the stamp moves to the reading.
    assert!(!bucket.take(400 * second, 1).granted);
    assert!(bucket.take(400 * second + second / 10, 1).granted);
    assert!(!bucket.take(400 * second + second / 10, 1).granted);
}

/// The windows of a slow quota are at least 2 ticks. In whole ticks they would otherwise round to
/// nothing.
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
    // The bucket is full after half a second, and has been full for two seconds after two and a
    // half.
    assert!(in_ticks(100 * second) > 0);
    assert!(in_ticks(100 * second + second / 2) > 0);
    assert!(in_ticks(102 * second + second / 2) > 0);
    let due = 100 * second + bucket.terms.ticks.nanos_until(100 * second, in_ticks(100 * second));
    assert!(in_ticks(due - 1) > 0);
    assert_eq!(in_ticks(due), 0);
    assert!((102 * second + second / 2..103 * second).contains(&due));
    // It is never evictable on a reading behind the stamp, nor by a clock that was set back.
    assert!(in_ticks(99 * second) > 0);
    assert!(in_ticks(second) > 0);
    assert_eq!(State::FULL.evictable_in(&bucket.terms, 0, 0), 0);
}

/// A take by a reading just before a commit earns nothing and keeps the stamp. It is the take of a
/// reading at the stamp, and its wait counts from the earlier reading.
#[test]
fn a_take_just_after_a_commit_is_one_at_its_stamp() {
    let (now, mut waits, mut lags) = (10_000_000_000, 0, 0);
    for (quota, _) in TABLE {
        let (tokens, nanos, burst) = quota;
        for taken in [1, burst.div_ceil(2), burst] {
            for n in [0, 1, burst / 2, burst] {
                for back in [0, 1, 300, nanos / tokens % 1_000_000_000] {
                    let mut bucket = Plain::new(quota);
                    assert!(bucket.take(now, taken).granted);
                    let (before, at) = (bucket.reading(now - back), bucket.reading(now));
                    assert!(bucket.state.is_just_after(&before, at.tick - before.tick));
                    let (outcome, next) = bucket.state.take_just_after(&before, Take::Exactly(n));
                    let (same, committed) = bucket.state.take_ahead(&at, Take::Exactly(n));
                    assert_eq!(next, committed, "{quota:?} {taken} {n} {back}");
                    let numbers = |outcome: TakeOutcome| (outcome.granted, outcome.taken, outcome.level);
                    assert_eq!(numbers(outcome), numbers(same));
                    assert_eq!(outcome.lag, at.tick - before.tick);
                    lags += u64::from(outcome.lag > 0);
                    let answer = answer(Take::Exactly(n).decision((outcome, before)));
                    let Some(wait) = answer.retry_after.filter(|_| !answer.granted) else { continue };
                    let (mut early, mut due) = (bucket, bucket);
                    assert!(!early.take(now - back + wait - 1, n).granted, "{quota:?} {n} {back}");
                    assert!(due.take(now - back + wait, n).granted, "{quota:?} {n} {back}");
                    waits += 1;
                }
            }
        }
    }
    assert!(waits > 100 && lags > 100, "{waits} waits, {lags} readings before the stamp");
}
