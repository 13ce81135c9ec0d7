//! Known rules in the closed loop, and the faults of each. The crate's own rule runs beside them,
//! and has none of these faults.

use std::time::Duration;

use tollgate_adaptive::{Inflight, InflightBuilder};
use tollgate_verify::closed_loop::{Outcome, run};
use tollgate_verify::controllers::{Aimd, Gradient2, ThreeSteps};
use tollgate_verify::disturbance::SCENARIOS;
use tollgate_verify::fleet::Fleet;

const TARGET: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);

fn ours() -> InflightBuilder {
    Inflight::adaptive(TARGET, 1_000)
}

fn aimd() -> InflightBuilder {
    ours().controller(Aimd { ceiling: 1_000, timeout: TARGET })
}

fn gradient2() -> InflightBuilder {
    Inflight::adaptive(TARGET, 200).floor(20).interval(SECOND).controller(Gradient2::new(200))
}

/// Half more than a limit that is tuned by hand, as the original is half more than the capacity.
fn three_steps() -> InflightBuilder {
    Inflight::adaptive(TARGET, 96).start(96).interval(SECOND).controller(ThreeSteps)
}

/// Runs a scenario with three seeds, and returns the mean of a figure.
fn mean(name: &str, builder: fn() -> InflightBuilder, figure: fn(&Outcome) -> f64) -> f64 {
    let scenario = SCENARIOS.into_iter().find(|scenario| scenario.name == name).expect("it is listed");
    (0..3).map(|seed| figure(&run(scenario, &Fleet::adaptive(1, false, builder), seed))).sum::<f64>() / 3.0
}

fn goodput(name: &str, builder: fn() -> InflightBuilder) -> f64 {
    mean(name, builder, |outcome| outcome.goodput)
}

/// AIMD takes a longer way for load: it ends at its floor.
#[test]
fn aimd_sheds_almost_all_where_the_way_is_longer_than_its_timeout() {
    let (theirs, crates) = (goodput("far", aimd), goodput("far", ours));
    assert!(theirs < 0.1 && crates > 0.7, "{theirs} {crates}");
}

/// The swing of the original is the harness's to bound: the coefficient of variation was 1.07.
#[test]
fn the_harness_bounds_the_swing_of_aimd() {
    let variation = mean("overload", aimd, |outcome| outcome.variation);
    assert!(variation < 0.3, "{variation}");
}

/// Gradient2 takes any slowness for load.
#[test]
fn gradient2_gives_up_half_when_latency_rises_for_another_reason() {
    let (theirs, crates) = (goodput("latency", gradient2), goodput("latency", ours));
    assert!(theirs < 0.5 && crates > 0.95, "{theirs} {crates}");
}

/// A least limit of 20 is too many for a server of one worker.
#[test]
fn gradient2_collapses_where_its_least_limit_is_too_high() {
    let (theirs, crates) = (goodput("few", gradient2), goodput("few", ours));
    assert!(theirs < 0.2 && crates > 0.7, "{theirs} {crates}");
}

/// Errors that no limit cures.
#[test]
fn three_steps_give_up_goodput_for_errors_that_no_limit_cures() {
    let (theirs, crates) = (goodput("errors", three_steps), goodput("errors", ours));
    assert!(theirs < 0.95 && crates > 0.99, "{theirs} {crates}");
}

/// A quarter of the ceiling is too many for a small server.
#[test]
fn three_steps_collapse_where_the_lowest_step_is_too_high() {
    let (theirs, crates) = (goodput("few", three_steps), goodput("few", ours));
    assert!(theirs < 0.2 && crates > 0.7, "{theirs} {crates}");
}

#[test]
#[ignore = "it prints the table"]
fn the_table() {
    type Make = fn() -> InflightBuilder;
    let rules: [(&str, Make); 4] =
        [("ours", ours), ("AIMD", aimd), ("Gradient2", gradient2), ("three steps", three_steps)];
    for (rule, make) in rules {
        print!("{rule:12}");
        for scenario in SCENARIOS {
            let of = |figure| mean(scenario.name, make, figure);
            print!(
                " {} {:.2}/{:.2}",
                scenario.name,
                of(|outcome| outcome.goodput),
                of(|outcome| outcome.variation)
            );
        }
        println!();
    }
}
