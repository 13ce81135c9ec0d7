//! Decisions at readings that no public clock gives.

use std::time::Duration;

use super::terms::compile;
use crate::word::decision::Granted;
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
