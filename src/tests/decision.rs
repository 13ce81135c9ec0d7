//! Decisions at readings that no public clock gives, and of requests without a key.

use std::time::Duration;

use super::terms::compile;
use crate::limiter::all_of::sealed::Limit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::rate::Quota;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Granted, Reason};
use crate::word::state::State;
use crate::word::terms::{Reading, Terms};
use crate::word::verb::Take;

/// Counts are told in nanoseconds rounded up, and none of them are none.
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

/// The bucket of requests without a key never has more than its burst, also before it is first
/// used.
#[test]
fn more_than_the_burst_of_no_key_is_too_many_at_once() {
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).start_empty().clock(Clock::mock().0);
    let limiter = limiter.build();
    let denied = limiter.no_key(11).look(Moment(0)).unwrap_err();
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::TooMany, None));
    // It begins to earn when it is first taken from.
    assert!(limiter.no_key(10).look(Moment(0)).is_ok());
}
