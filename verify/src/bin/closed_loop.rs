//! Prints the table of the closed loop: each scenario under each limit, the mean of three seeds.

use std::time::Duration;

use tollgate::{Inflight, InflightBuilder};
use tollgate_verify::closed_loop::{Fleet, Outcome, SCENARIOS, run};

const TARGET: Duration = Duration::from_millis(300);

fn ours() -> InflightBuilder {
    Inflight::adaptive(TARGET, 1_000)
}

fn main() {
    type Make = fn() -> Fleet;
    let limits: [(&str, Make); 5] = [
        ("fixed 64", || Fleet::new(1, false, |_| Inflight::fixed(64))),
        ("ours", || Fleet::adaptive(1, false, ours)),
        ("ours, never in vain", || Fleet::adaptive(1, false, || ours().slack(1))),
        ("ours, 8 proxies", || Fleet::adaptive(8, false, || Inflight::adaptive(TARGET, 250).start(8).samples(16))),
        ("ours, priorities", || Fleet::adaptive(1, true, ours)),
    ];
    let only: Vec<String> = std::env::args().skip(1).collect();
    for (name, make) in limits {
        if !only.is_empty() && !only.iter().any(|o| o == name) {
            continue;
        }
        println!("== {name}");
        for scenario in SCENARIOS {
            let outcomes: Vec<Outcome> = (0..3).map(|seed| run(scenario, &make(), seed)).collect();
            let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / 3.0;
            println!(
                "{:10} goodput {:.3} slow tenth {:.3} median {:.3} refused {:.3} cv {:.3} back {:.1} classes {:.2} {:.2} {:.2}",
                scenario.name,
                mean(|o| o.goodput),
                mean(|o| o.slow_tenth),
                mean(|o| o.median),
                mean(|o| o.refused),
                mean(|o| o.variation),
                mean(|o| o.back),
                mean(|o| o.classes[0]),
                mean(|o| o.classes[1]),
                mean(|o| o.classes[2]),
            );
        }
    }
}
