//! The bounds of leases, over the scenarios of the design.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tollgate::Quota;

use crate::world::World;

struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the time to the next of requests that come at a rate, in seconds.
    fn gap(&mut self, rate: f64) -> f64 {
        -(1.0 - self.next()).ln() / rate
    }
}

/// The figures of a run.
#[derive(Debug)]
struct Run {
    decisions: u64,
    calls: f64,
    granted: usize,
    /// The tokens below an ideal bucket at the deepest.
    over: f64,
    /// The share of the ideal grants that was not granted.
    under: f64,
}

async fn run(quota: Quota, demands: &[f64], time: f64, horizon: Option<Duration>) -> Run {
    let world = World::new(Duration::from_millis(1));
    let grants = Arc::new(Mutex::new(Vec::new()));
    let mut processes = JoinSet::new();
    let begun = Instant::now();
    for (index, &demand) in demands.iter().enumerate() {
        let builder = world.process(quota);
        let limiter = match horizon {
            Some(horizon) => builder.leased(horizon),
            None => builder.exact(),
        };
        let (limiter, grants) = (limiter.build().unwrap(), grants.clone());
        processes.spawn(async move {
            let (mut random, mut at, mut decisions) = (Random(index as u64 * 77 + 0x9E37_79B9), 0.0, 0);
            let mut requests = JoinSet::new();
            loop {
                at += random.gap(demand);
                if at > time {
                    break;
                }
                sleep_until(begun + Duration::from_secs_f64(at)).await;
                decisions += 1;
                let (limiter, grants) = (limiter.clone(), grants.clone());
                requests.spawn(async move {
                    if limiter.ask(&7).await.is_ok() {
                        grants.lock().unwrap().push(begun.elapsed().as_secs_f64());
                    }
                });
                while requests.try_join_next().is_some() {}
            }
            requests.join_all().await;
            (decisions, limiter)
        });
    }
    let (mut decisions, mut limiters) = (0, Vec::new());
    while let Some(ended) = processes.join_next().await {
        let (count, limiter) = ended.unwrap();
        decisions += count;
        limiters.push(limiter);
    }
    let calls = world.ops.load(Relaxed) as f64 / time;
    for limiter in &limiters {
        assert_eq!(limiter.stats().by_fallback, 0);
    }
    let mut grants = grants.lock().unwrap().clone();
    grants.sort_by(f64::total_cmp);
    let (burst, rate) = (quota.capacity() as f64, quota.tokens() as f64 / quota.period().as_secs_f64());
    let (mut level, mut last, mut over) = (burst, 0.0, 0.0_f64);
    for at in &grants {
        level = (level + (at - last) * rate).min(burst) - 1.0;
        last = *at;
        over = over.max(-level);
    }
    let ideal = (demands.iter().sum::<f64>() * time).min(burst + rate * time);
    Run { decisions, calls, granted: grants.len(), over, under: 1.0 - grants.len() as f64 / ideal }
}

fn per_second(rate: u64, burst: u64) -> Quota {
    Quota::per_second(rate).burst(burst)
}

const TAU: Option<Duration> = Some(Duration::from_millis(100));

/// Runs a scenario in both modes. Leases take a fraction `calls` of the calls, and lose the share
/// `under` of the tokens at most. Neither mode ever grants a token that the ideal bucket has not.
async fn compare(name: &str, quota: Quota, demands: &[f64], time: f64, calls: f64, under: f64) {
    let exact = run(quota, demands, time, None).await;
    let leased = run(quota, demands, time, TAU).await;
    for (mode, run) in [("exact", &exact), ("leased", &leased)] {
        println!(
            "{name}, {mode}: {} decisions, {:.0} calls/s, {} granted, {:.2} over, {:.2} % under",
            run.decisions,
            run.calls,
            run.granted,
            run.over,
            run.under * 100.0
        );
        assert!(run.over < 1e-6, "{name}, {mode}: {} tokens were minted", run.over);
    }
    assert!(leased.calls <= exact.calls * calls, "{name}: {} of {} calls", leased.calls, exact.calls);
    assert!(exact.under < 0.0025 && leased.under < under, "{name}: {} and {}", exact.under, leased.under);
}

#[tokio::test(start_paused = true)]
async fn four_processes_that_ask_for_twice_the_rate() {
    compare("4 x 500/s on 1000/s", per_second(1_000, 1_000), &[500.0; 4], 20.0, 1.0 / 20.0, 0.005).await;
}

#[tokio::test(start_paused = true)]
async fn four_processes_below_the_rate() {
    compare("4 x 1500/s on 10000/s", per_second(10_000, 10_000), &[1_500.0; 4], 8.0, 1.0 / 40.0, 0.005).await;
}

#[tokio::test(start_paused = true)]
async fn one_process_has_most_of_the_demand() {
    compare("skew", per_second(1_000, 1_000), &[1_800.0, 100.0, 60.0, 40.0], 20.0, 1.0 / 10.0, 0.005).await;
}

/// Nearly all is refused. The level that the store told last refuses it, in both modes.
#[tokio::test(start_paused = true)]
async fn an_abusive_fleet() {
    let quota = per_second(10, 10);
    for horizon in [None, TAU] {
        let run = run(quota, &[1_250.0; 4], 10.0, horizon).await;
        assert!(run.calls < 80.0 && run.over < 1e-6 && run.granted >= 109, "{run:?}");
    }
}

/// A burst that is half of a lease's time bounds the debt: more calls, and no token minted.
#[tokio::test(start_paused = true)]
async fn sixteen_processes_on_a_small_burst() {
    compare("16 x 100/s on burst 50", per_second(1_000, 50), &[100.0; 16], 10.0, 0.4, 0.006).await;
}
