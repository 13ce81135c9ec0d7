//! Decisions at readings that no public clock gives.

use std::time::Duration;

use super::terms::compile;
use crate::limiter::limit::TokenBucket;
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::verb::Take;

/// `reset_after` is converted from raw units and rounded up to nanoseconds. It is 0 if the bucket
/// is full, and only then.
#[test]
fn a_full_bucket_is_full_in_no_time_by_any_count() {
    let terms = compile((5, 3_600_000_000_000, 5)).unwrap();
    for (whole, part) in [(1, 0), (0, 1 << 63), (2, 7), (1_000, 1)] {
        let terms = Terms { ticks: terms.ticks.counted(whole, part), ..terms };
        for count in [1_u64, 999_999_937, 1 << 40] {
            let reading = Reading::new(terms, count);
            let full = State::pack(&terms, terms.capacity, reading.tick);
            for (n, is_full) in [(0, true), (1, false)] {
                let (outcome, _) = Take::Exactly(n).apply(full, &reading);
                let reset = Granted::new(outcome, &reading).reset_after();
                assert_eq!(
                    reset == Duration::ZERO,
                    is_full,
                    "{reset:?} after {n} of {whole} + {part} / 2^64"
                );
            }
        }
    }
}

/// Decisions that tell the same are equal, at whatever moments and by whatever verb they were made.
/// Those that print differently are not.
#[test]
fn decisions_that_print_the_same_are_equal() {
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(Quota::per_second(5).burst(2)).clock(clock).build();
    let mut granted = Vec::new();
    let mut denied = Vec::new();
    for _ in 0..3 {
        mock.advance(Duration::from_secs(1_000_003));
        granted.push(bucket.try_acquire_n(2).unwrap());
        denied.extend([bucket.try_acquire().unwrap_err(), bucket.ask().hold().unwrap_err()]);
        denied.extend([1, 2].map(|n| bucket.try_acquire_n(n).unwrap_err()));
        denied.push(bucket.try_acquire_n(3).unwrap_err());
    }
    let wait = denied[0].retry_after();
    denied.push(Denied::from_parts(Reason::Empty, 1, 0, wait));
    denied.extend([3, 4].map(|bound| Denied::over_debt(2, bound, 7)));
    for one in &denied {
        for two in &denied {
            let print = |denied: &Denied| format!("{denied} {denied:?}");
            assert_eq!(one == two, print(one) == print(two), "{one:?} {two:?}");
        }
    }
    assert_eq!(denied[0], denied[1]);
    assert!(granted.iter().all(|one| *one == granted[0]));
    assert_ne!(granted[0], bucket.try_acquire_n(0).unwrap());
}
