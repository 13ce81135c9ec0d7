//! The timed loops: every thread decides for a while, and its decisions are counted.

use std::num::NonZero;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::start_line::StartLine;
use crate::{Limiter, Path};

/// Decisions between two looks at the time.
pub const BATCH: usize = 1_000;

/// The keys of each thread, drawn before any timing. A thread walks its keys again and again.
pub struct Draws<K>(Vec<Draw<K>>);

struct Draw<K> {
    keys: Vec<K>,
    /// Index of the next key.
    next: AtomicUsize,
}

/// The decisions of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    /// Number of decisions.
    pub decisions: u64,
    /// Number of granted decisions.
    pub granted: u64,
    /// Time from the thread's own start to its own end.
    pub elapsed: Duration,
}

impl<K: Send + Sync> Draws<K> {
    /// Draws the keys of each thread by `draw`.
    pub fn new(threads: usize, draw: impl Fn(usize) -> Vec<K>) -> Draws<K> {
        let draw = |thread| Draw { keys: draw(thread), next: AtomicUsize::new(0) };
        Draws((0..threads).map(draw).collect())
    }

    /// Lets a thread for each draw decide for `window`, and returns its laps, or `None` if a
    /// decision was not on the path.
    ///
    /// Some decisions before the window are not counted: they fill the caches and a thread's
    /// records. If there is a processor for each thread, they start once all are seen to run at the
    /// same time.
    pub fn run(&self, limiter: &dyn Limiter<K>, path: Path, window: Duration) -> Option<Vec<Lap>> {
        let threads = self.0.len();
        let line = Start::new(threads);
        let run = |thread: usize| {
            let draw: &Draw<K> = &self.0[thread];
            let warm_up = draw.keys.len().clamp(BATCH, 100 * BATCH);
            let (mut warm, mut kept) = (0, true);
            while warm < warm_up {
                warm += draw.batch(limiter).0;
            }
            line.wait(thread);
            let start = Instant::now();
            let (mut decisions, mut granted) = (0, 0);
            loop {
                let (made, were) = draw.batch(limiter);
                kept &= path.was_kept(made as u64, were);
                decisions += made as u64;
                granted += were;
                let elapsed = start.elapsed();
                if elapsed >= window {
                    return kept.then_some(Lap { decisions, granted, elapsed });
                }
            }
        };
        on_threads(threads, run).into_iter().collect()
    }
}

/// Runs `run` on that number of threads, each with its index, and returns the results in order.
pub(crate) fn on_threads<T: Send>(threads: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let run = &run;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a decision does not panic")).collect()
    })
}

impl<K> Draw<K> {
    fn batch(&self, limiter: &dyn Limiter<K>) -> (usize, u64) {
        let from = self.next.load(Relaxed);
        let keys = &self.keys[from..(from + BATCH).min(self.keys.len())];
        let next = from + keys.len();
        self.next.store(if next == self.keys.len() { 0 } else { next }, Relaxed);
        let granted = limiter.count_granted(keys);
        (keys.len(), granted)
    }
}

/// Returns the nanoseconds from decision to decision of one thread.
pub fn nanos(laps: &[Lap]) -> f64 {
    let elapsed: Duration = laps.iter().map(|lap| lap.elapsed).sum();
    elapsed.as_secs_f64() * 1e9 / laps.iter().map(|lap| lap.decisions).sum::<u64>() as f64
}

/// Returns whether that number of threads have a processor each.
pub(crate) fn have_processors(threads: usize) -> bool {
    threads <= thread::available_parallelism().map_or(1, NonZero::get)
}

/// The place where threads wait for each other.
pub(crate) enum Start {
    AtOnce(StartLine),
    InTurns(Barrier),
}

impl Start {
    pub(crate) fn new(threads: usize) -> Start {
        match have_processors(threads) {
            true => Start::AtOnce(StartLine::new(threads)),
            false => Start::InTurns(Barrier::new(threads)),
        }
    }

    pub(crate) fn wait(&self, thread: usize) {
        match self {
            Start::AtOnce(line) => line.wait(thread),
            Start::InTurns(barrier) => {
                barrier.wait();
            }
        }
    }
}
