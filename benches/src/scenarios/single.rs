//! Times of single decisions.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::effort::{Effort, say};
use crate::contenders::Nothing;
use crate::results::{Case, Latencies};
use crate::timing::{BATCH, Start, on_threads};
use crate::{Contender, Limiter, Path, Setup};

/// The times of some decisions.
pub(super) struct Watch {
    clock: quanta::Clock,
    pub(super) histogram: Histogram<u64>,
}

impl Watch {
    pub(super) fn new() -> Watch {
        // Up to 100 s, to a part in 1,000.
        let histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order");
        Watch { clock: quanta::Clock::new(), histogram }
    }

    /// Does `act` and records its time, with two readings of the counter in it.
    #[inline(always)]
    pub(super) fn time<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let start = self.clock.raw();
        let done = act();
        let end = self.clock.raw();
        self.histogram.saturating_record(self.clock.delta_as_nanos(start, end).max(1));
        done
    }

    pub(super) fn p999(&self) -> f64 {
        self.histogram.value_at_quantile(0.999) as f64
    }
}

/// Returns quantiles of a histogram, finer towards the slowest.
pub(super) fn quantiles(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let mut quantiles = vec![(0.0, histogram.min() as f64)];
    let steps =
        |decade: i32| (0..20).map(move |step| 1.0 - 10_f64.powf(-f64::from(decade) - f64::from(step) / 20.0));
    let at = |quantile: f64| (quantile, histogram.value_at_quantile(quantile) as f64);
    quantiles.extend((0..7).flat_map(steps).skip(1).map(at));
    quantiles.extend([0.5, 0.99, 0.999, 0.9999].map(at));
    quantiles.push((1.0, histogram.max() as f64));
    quantiles.sort_by(|one, other| one.0.total_cmp(&other.0));
    quantiles.dedup_by(|one, other| one.0 == other.0);
    quantiles
}

/// Times single decisions on one bucket, with more threads than processors: a thread that holds a
/// lock and loses its processor keeps all others waiting.
///
/// A contender with a reading at hand reads a clock in each decision here.
pub fn one_by_one(effort: &Effort, contenders: &[Contender<()>]) -> Vec<Latencies> {
    let mut latencies = Vec::new();
    for threads in [8, 16] {
        let path = Path::Granted;
        let case = Case { what: "one bucket".to_owned(), path: path.name().to_owned(), threads, keys: 1 };
        say(format_args!("single decisions, {threads} threads"));
        let nothing = Contender::new::<Nothing>("none: the two readings");
        let all: Vec<_> = [&nothing].into_iter().chain(contenders).collect();
        let limiters: Vec<_> =
            all.iter().map(|contender| (contender.make)(Setup { quota: path.quota(), keys: 1 })).collect();
        let mut watches: Vec<_> = all.iter().map(|_| (Watch::new(), Vec::new())).collect();
        for round in 0..effort.long_rounds {
            for turn in 0..all.len() {
                let turn = (turn + round) % all.len();
                let watch = watch(&*limiters[turn], threads, effort.long_window);
                watches[turn].1.push(watch.p999());
                watches[turn].0.histogram.add(&watch.histogram).expect("all have the same bounds");
            }
        }
        latencies.extend(all.iter().zip(watches).map(|(contender, (watch, p999))| Latencies {
            case: case.clone(),
            contender: contender.name.to_owned(),
            quantiles: quantiles(&watch.histogram),
            p999,
            decisions: watch.histogram.len(),
            notes: Vec::new(),
        }));
    }
    latencies
}

fn watch(limiter: &dyn Limiter<()>, threads: usize, window: Duration) -> Watch {
    let line = Start::new(threads);
    let run = |thread| {
        let mut watch = Watch::new();
        limiter.count_granted(&[(); BATCH]);
        line.wait(thread);
        let start = Instant::now();
        while start.elapsed() < window {
            for _ in 0..BATCH {
                watch.time(|| limiter.try_acquire(&()));
            }
        }
        watch
    };
    let mut all = Watch::new();
    for watch in on_threads(threads, run) {
        all.histogram.add(&watch.histogram).expect("all have the same bounds");
    }
    all
}
