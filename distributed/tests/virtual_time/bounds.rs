//! The bounds of leases, over the scenarios of the design.

use std::time::Duration;

use tollgate::Quota;

use crate::fleet::{Fleet, Run};

const TAU: Duration = Duration::from_millis(100);

fn per_second(rate: u64, burst: u64) -> Quota {
    Quota::per_second(rate).burst(burst)
}

/// Runs a fleet in both modes. Neither ever grants a token that the ideal bucket has not.
async fn both(name: &str, fleet: Fleet) -> [Run; 2] {
    let runs = [fleet.clone().run().await, fleet.clone().leased(TAU).run().await];
    for (mode, run) in ["exact", "leased"].iter().zip(&runs) {
        println!("{name}, {mode}: {run:?}");
        assert!(run.over < 1e-6, "{name}, {mode}: {} tokens were minted", run.over);
        assert!(run.ops >= run.calls && run.ops <= run.calls * 64, "a call is for 1 to 64 keys: {run:?}");
    }
    runs
}

/// Leases take a part `calls` of the calls, and lose the share `under` of the tokens at most.
async fn compare(name: &str, fleet: Fleet, calls: f64, under: f64) -> [Run; 2] {
    let [exact, leased] = both(name, fleet).await;
    let of = leased.calls as f64 / exact.calls as f64;
    assert!(of <= calls, "{name}: {} of {} calls", leased.calls, exact.calls);
    assert!(exact.under < 0.0025 && leased.under < under, "{name}: {} and {}", exact.under, leased.under);
    [exact, leased]
}

#[tokio::test(start_paused = true)]
async fn four_processes_that_ask_for_twice_the_rate() {
    let fleet = Fleet::new(per_second(1_000, 1_000), 4, 500.0, 20.0);
    let [_, leased] = compare("4 x 500/s on 1000/s", fleet, 1.0 / 20.0, 0.005).await;
    assert!(leased.calls * 40 <= leased.decisions, "{leased:?}");
}

#[tokio::test(start_paused = true)]
async fn four_processes_below_the_rate() {
    let fleet = Fleet::new(per_second(10_000, 10_000), 4, 1_500.0, 8.0);
    compare("4 x 1500/s on 10000/s", fleet, 1.0 / 40.0, 0.005).await;
}

#[tokio::test(start_paused = true)]
async fn one_process_has_most_of_the_demand() {
    let demands = vec![1_800.0, 100.0, 60.0, 40.0];
    let fleet = Fleet { demands, ..Fleet::new(per_second(1_000, 1_000), 4, 0.0, 20.0) };
    compare("skew", fleet, 1.0 / 10.0, 0.005).await;
}

/// Nearly all is refused. The level that the store told last refuses it, in both modes.
#[tokio::test(start_paused = true)]
async fn an_abusive_fleet() {
    for run in both("abuse", Fleet::new(per_second(10, 10), 4, 1_250.0, 10.0)).await {
        assert!(run.calls < 800 && run.granted >= 109, "{run:?}");
    }
}

/// A burst that is half of a lease's time bounds the debt: more calls, and no token minted.
#[tokio::test(start_paused = true)]
async fn sixteen_processes_on_a_small_burst() {
    let fleet = Fleet::new(per_second(1_000, 50), 16, 100.0, 10.0);
    compare("16 x 100/s on burst 50", fleet, 0.4, 0.006).await;
}
