//! The timed loops: every thread makes the same number of decisions, and the slowest one's time counts.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::start_line::StartLine;
use crate::{KeyedLimiter, Limiter, Path};

/// How many keys a keyed limiter holds.
pub const KEYS: usize = 1_000;

/// Decisions of each thread ahead of the timing: they fill the caches, and set up what a thread has at first use.
const WARM_UP: u64 = KEYS as u64;

/// A limiter that is ready to be timed: given a number of decisions, the time in which each thread made as many.
pub type Timer = Box<dyn Fn(u64) -> Duration>;

/// The same for any number of decisions: of fewer than 10,000 the time is taken as their part of that of 10,000, as
/// otherwise it would be that of starting the threads.
pub fn in_proportion(timer: Timer) -> impl Fn(u64) -> Duration {
    move |decisions| {
        let timed = decisions.max(10_000);
        timer(timed).mul_f64(decisions as f64 / timed as f64)
    }
}

/// Times `threads` threads on one bucket.
#[must_use]
pub fn one_bucket<L: Limiter + 'static>(path: Path, threads: usize) -> Timer {
    let bucket = OwnLines(L::new(path.quota()));
    assert!(bucket.0.try_acquire(), "a bucket starts full");
    Box::new(move |decisions| {
        slowest(threads, decisions, |_thread, decisions| {
            // The black box keeps what the bucket holds from being loaded once for all decisions.
            let granted = (0..decisions).map(|_| u64::from(black_box(&bucket.0).try_acquire())).sum();
            path.check(decisions, granted);
        })
    })
}

/// Times `threads` threads on [`KEYS`] keys, all of which the limiter has seen before.
#[must_use]
pub fn keyed<L: KeyedLimiter + 'static>(path: Path, threads: usize) -> Timer {
    let limiter = OwnLines(L::new(path.quota(), KEYS));
    let orders: Vec<Vec<u64>> = (0..threads).map(shuffled_keys).collect();
    for &key in &orders[0] {
        assert!(limiter.0.try_acquire(key), "a key's bucket starts full");
    }
    Box::new(move |decisions| {
        slowest(threads, decisions, |thread, decisions| {
            let keys = orders[thread].iter().copied().cycle();
            let granted = limiter.0.count_granted((0..decisions).zip(keys).map(|(_, key)| key));
            path.check(decisions, granted);
        })
    })
}

/// Times `threads` threads that do no more than read a clock: they share nothing, so that more threads should not
/// take longer than 1.
#[must_use]
pub fn clock<T>(threads: usize, read: impl Fn() -> T + Sync + 'static) -> Timer {
    Box::new(move |readings| {
        slowest(threads, readings, |_thread, readings| {
            for _ in 0..readings {
                black_box(read());
            }
        })
    })
}

/// Keeps a limiter off its neighbours' cache lines: 2 of them, as processors fetch lines in pairs.
#[repr(align(128))]
struct OwnLines<T>(T);

/// The same keys for every thread, in an order of its own.
fn shuffled_keys(thread: usize) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..KEYS).map(mix).collect();
    keys.sort_by_key(|key| mix((thread, key)));
    keys
}

/// Random enough, and the same in every run.
fn mix(seed: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(seed)
}

/// The time from the first thread's start to the last one's end. `decide` makes some decisions, given the thread's
/// number and theirs.
fn slowest(threads: usize, decisions: u64, decide: impl Fn(usize, u64) + Sync) -> Duration {
    let line = &StartLine::new(threads);
    let run = |thread| {
        decide(thread, WARM_UP);
        line.wait(thread);
        let start = Instant::now();
        decide(thread, decisions);
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("all decisions are on the path")).collect()
    });
    let start = spans.iter().map(|(start, _)| *start).min().expect("there is at least 1 thread");
    let end = spans.iter().map(|(_, end)| *end).max().expect("there is at least 1 thread");
    end - start
}
