//! Runs the named scenarios, or all of them. Ends with a failure if one does not hold.
//!
//! ```text
//! threads [--small | --quick | --full] [conservation] [drain] [verbs]
//! ```

use std::env;
use std::time::Instant;

use tollgate_verify::scenarios::{Size, conservation, drain, verbs};
use tollgate_verify::watchdog::Watchdog;

type Scenario = (&'static str, fn(Size));

const SCENARIOS: [Scenario; 3] =
    [("conservation", conservation::run), ("drain", drain::run), ("verbs", verbs::run)];

fn main() {
    let (mut size, mut chosen) = (Size::Quick, Vec::new());
    for word in env::args().skip(1) {
        match word.as_str() {
            "--small" => size = Size::Small,
            "--quick" => size = Size::Quick,
            "--full" => size = Size::Full,
            name => {
                chosen.push(*SCENARIOS.iter().find(|(known, _)| *known == name).expect("a scenario's name"))
            }
        }
    }
    if chosen.is_empty() {
        chosen.extend(SCENARIOS);
    }
    for (name, run) in chosen {
        println!("{name}, {size:?}");
        let _watchdog = Watchdog::of(name, 3_600);
        let start = Instant::now();
        run(size);
        println!("{name} holds, {:.1} s\n", start.elapsed().as_secs_f64());
    }
}
