//! A cache line that two processors pass to and fro: what each grant of a hot bucket waits for, if another core had the last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::{Effort, say};
use crate::timing::{Start, have_processors};

/// In a round.
const TRANSFERS: u64 = 20_000;

/// Off its neighbours' lines.
#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds of a transfer, a value for each round. None if there are no two processors.
///
/// # Panics
///
/// If the threads cannot be had.
#[must_use]
pub fn transfers(effort: &Effort) -> Vec<f64> {
    if !have_processors(2) {
        return Vec::new();
    }
    say("a cache line between two processors");
    (0..effort.rounds).map(|_| transfer()).collect()
}

fn transfer() -> f64 {
    let (line, start) = (Line(AtomicU64::new(0)), Start::new(2));
    let run = |thread: u64| {
        start.wait(thread as usize);
        let begun = Instant::now();
        let mut next = thread;
        while next < TRANSFERS {
            // As a bucket does: looked at, then swapped. Without a pause, which may take longer than a transfer.
            if line.0.load(Ordering::Acquire) == next {
                let swapped = line.0.compare_exchange(next, next + 1, Ordering::AcqRel, Ordering::Relaxed);
                assert_eq!(swapped, Ok(next), "it is this thread's turn");
                next += 2;
            }
        }
        begun.elapsed()
    };
    let run = &run;
    let elapsed = thread::scope(|scope| {
        let other = scope.spawn(move || run(1));
        let elapsed = run(0);
        elapsed.max(other.join().expect("it takes its turns"))
    });
    elapsed.as_secs_f64() * 1e9 / TRANSFERS as f64
}
