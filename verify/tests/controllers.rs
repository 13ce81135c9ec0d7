//! Known rules in the closed loop, and the faults of each. The crate's own rule runs beside them, and
//! has none of these faults.

use std::time::Duration;

use tollgate::{Inflight, InflightBuilder};
use tollgate_verify::closed_loop::{Fleet, Outcome, SCENARIOS, run};
use tollgate_verify::controllers::{Aimd, Gradient2, ThreeSteps};

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
