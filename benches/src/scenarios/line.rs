//! A cache line that two processors pass to and fro, as each grant of a hot bucket needs it if
//! another core had the last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::effort::{Effort, say};
use crate::timing::{Start, have_processors, on_threads};

/// Transfers in a round.
const TRANSFERS: u64 = 20_000;

/// A line of its own.
#[repr(align(128))]
struct SharedLine(AtomicU64);

/// Returns the nanoseconds of a transfer, a value for each round, or none without two processors.
pub fn transfers(effort: &Effort) -> Vec<f64> {
    if !have_processors(2) {
        return Vec::new();
    }
    say("a cache line between two processors");
    (0..effort.rounds).map(|_| transfer()).collect()
}

fn transfer() -> f64 {
    let (line, start) = (SharedLine(AtomicU64::new(0)), Start::new(2));
    let run = |thread: usize| {
        start.wait(thread);
        let begun = Instant::now();
        let mut next = thread as u64;
        while next < TRANSFERS {
            // A load and a swap, as of a bucket, without a pause, which may last longer than a
            // transfer.
            if line.0.load(Ordering::Acquire) == next {
                let swapped = line.0.compare_exchange(next, next + 1, Ordering::AcqRel, Ordering::Relaxed);
                assert_eq!(swapped, Ok(next), "it is this thread's turn");
                next += 2;
            }
        }
        begun.elapsed()
    };
    let elapsed = on_threads(2, run).into_iter().max().expect("there are two");
    elapsed.as_secs_f64() * 1e9 / TRANSFERS as f64
}
