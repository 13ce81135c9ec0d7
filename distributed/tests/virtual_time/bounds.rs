//! The bounds of leases, over the scenarios of the design.

use std::time::Duration;

use tollgate::Quota;

use crate::fleet::{Fleet, Run};

const TAU: Duration = Duration::from_millis(100);

fn per_second(rate: u64, burst: u64) -> Quota {
    Quota::per_second(rate).burst(burst)
}

/// Runs a fleet in both modes.
async fn both_in_turns(name: &str, fleet: Fleet) -> [Run; 2] {
    let runs = [fleet.run().await, fleet.leased(TAU).run().await];
    for (mode, run) in ["exact", "leased"].iter().zip(&runs) {
        println!("{name}, {mode}: {run:?}");
        assert!(run.ops >= run.calls && run.ops <= run.calls * 64, "a call is for 1 to 64 keys: {run:?}");
    }
    runs
}

/// Runs a fleet in both modes. Under a load without a pause, neither ever grants a token that the
/// ideal bucket has not.
async fn both(name: &str, fleet: Fleet) -> [Run; 2] {
    let runs = both_in_turns(name, fleet).await;
    for run in &runs {
        assert!(run.over < 1e-6, "{name}: tokens were minted: {run:?}");
    }
    runs
}

/// Leases need at most the part `calls` of the calls of the exact mode, and miss at most the share
/// `under` of the tokens.
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
    let [_, leased] = compare("4 x 1500/s on 10000/s", fleet, 1.0 / 40.0, 0.005).await;
    // The next lease mostly arrives before the last token of this one is used.
    assert!(leased.waited * 200 <= leased.decisions, "{leased:?}");
}

#[tokio::test(start_paused = true)]
async fn one_process_has_most_of_the_demand() {
    let demands = vec![1_800.0, 100.0, 60.0, 40.0];
    let fleet = Fleet { demands, ..Fleet::new(per_second(1_000, 1_000), 4, 0.0, 20.0) };
    compare("skew", fleet, 1.0 / 10.0, 0.005).await;
}

/// Nearly all requests are refused by the level of the last answer, in both modes.
#[tokio::test(start_paused = true)]
async fn an_abusive_fleet() {
    for run in both("abuse", Fleet::new(per_second(10, 10), 4, 1_250.0, 10.0)).await {
        assert!(run.calls < 800 && run.granted >= 109, "{run:?}");
    }
}

/// A small burst cuts the leases: more calls, and no token minted.
#[tokio::test(start_paused = true)]
async fn sixteen_processes_on_a_small_burst() {
    let fleet = Fleet::new(per_second(1_000, 50), 16, 100.0, 10.0);
    compare("16 x 100/s on burst 50", fleet, 0.4, 0.005).await;
    // At a burst of 20 a lease is for 10 ms, in which the demand is 16 tokens. Each process may
    // hold one more.
    let [exact, leased] = both_in_turns("burst 20", Fleet::new(per_second(1_000, 20), 16, 100.0, 4.0)).await;
    assert!(exact.over < 1e-6 && leased.unspent <= 32 && leased.over <= 5.0, "{exact:?}, {leased:?}");
    // A burst of one token is the exact mode.
    let [exact, leased] = both("burst 1", Fleet::new(per_second(1_000, 1), 16, 100.0, 1.0)).await;
    assert_eq!(leased.calls, exact.calls);
}

/// A key that is asked for less than once in a horizon takes a lease only now and then: most of its
/// requests wait for a call, as in the exact mode.
#[tokio::test(start_paused = true)]
async fn a_cold_key_is_mostly_decided_by_calls() {
    let [exact, leased] = both("cold", Fleet::new(per_second(100, 100), 4, 3.0, 20.0)).await;
    assert!(leased.waited * 5 >= exact.waited * 4, "{exact:?}, {leased:?}");
}

/// The load pauses, and the bucket fills while leases are held: a window from there on has the
/// burst, the rate and the unused tokens of the leases.
#[tokio::test(start_paused = true)]
async fn windows_have_the_unused_tokens_on_top() {
    let fleet = Fleet::new(per_second(1_000, 1_000), 4, 2_000.0, 8.0);
    // The bucket is full again after 1.1 s, and leases go back after a second without a request.
    for (off, least, most) in [(0.5, 0.0, 1e-6), (1.2, 20.0, 101.0)] {
        let fleet = Fleet { turns: Some((0.6, off)), ..fleet.clone() };
        let [exact, leased] = both_in_turns(&format!("{off} s off"), fleet).await;
        assert!(exact.over < 1e-6, "{exact:?}");
        assert!((least..=most).contains(&leased.over.max(0.0)), "{leased:?}");
        assert!(leased.over <= leased.unspent as f64 + 1.0, "{leased:?}");
    }
}

/// One process or many: the same grants, and a call for each lease at most.
#[tokio::test(start_paused = true)]
async fn any_number_of_processes() {
    for processes in [1, 16, 250] {
        let fleet = Fleet::new(per_second(1_000, 1_000), processes, 2_000.0 / processes as f64, 3.0);
        let [exact, leased] = both(&format!("{processes} processes"), fleet).await;
        for run in [&exact, &leased] {
            assert!(run.granted + run.held + run.ideal / 200 >= run.ideal, "{run:?}");
        }
        assert!(leased.calls as f64 <= exact.calls as f64 * 1.05, "{exact:?}, {leased:?}");
    }
}

/// A longer lease takes fewer calls. None of them mints a token.
#[tokio::test(start_paused = true)]
async fn any_horizon() {
    let mut last = u64::MAX;
    for millis in [10, 100, 1_000] {
        let fleet = Fleet::new(per_second(1_000, 1_000), 4, 500.0, 4.0);
        let run = fleet.leased(Duration::from_millis(millis)).run().await;
        println!("{millis} ms: {run:?}");
        assert!(run.over < 1e-6 && run.under < 0.02 && run.calls * 2 < last, "{run:?} after {last} calls");
        last = run.calls;
    }
}

/// Each of many keys has its bucket. Those that are asked for often have leases.
#[tokio::test(start_paused = true)]
async fn many_keys() {
    let fleet = Fleet { keys: 5_000, ..Fleet::new(per_second(100, 100), 4, 2_500.0, 1.0) };
    let [exact, leased] = both("5,000 keys", fleet).await;
    assert!(exact.under < 0.005 && leased.under < 0.005, "{exact:?}, {leased:?}");
    assert!(leased.ops < exact.ops && leased.calls * 2 < leased.decisions, "{exact:?}, {leased:?}");
}

/// Processes that ask for less than a token in a horizon take none on credit: else each of them
/// would hold a token that another one waits for.
#[tokio::test(start_paused = true)]
async fn a_thousand_quiet_processes() {
    let fleet = Fleet::new(per_second(1_000, 1_000), 1_000, 2.0, 5.0);
    let [_, leased] = both("1,000 processes", fleet).await;
    assert!(leased.under < 0.02 && leased.unspent < 200, "{leased:?}");
}

/// A process with few requests has its part of a key that another process keeps without tokens.
#[tokio::test(start_paused = true)]
async fn a_quiet_process_beside_a_busy_one() {
    let fleet = Fleet { demands: vec![2_000.0, 4.0], ..Fleet::new(per_second(1_000, 1_000), 2, 0.0, 20.0) };
    let run = fleet.leased(TAU).run().await;
    assert!(run.used[1] * 3 >= 80 && run.under < 0.005, "{run:?}");
}
