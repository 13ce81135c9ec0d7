//! Fleets of the limiter itself in virtual time, over a store in memory.
//!
//! The load is that of the tests in `distributed/tests/virtual_time`, which assert the bounds on
//! small fleets. Time goes in steps of a millisecond, and a round trip takes two.

#[path = "../../tests/virtual_time/fleet.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod fleet;
#[path = "../../tests/matrix/granted.rs"]
mod granted;
#[path = "../../tests/matrix/ideal.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod ideal;
#[path = "../../tests/matrix/random.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod random;
#[path = "../../tests/virtual_time/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::io;
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::Quota;
use tollgate_benches::numbers::{count, grouped};
use tollgate_benches::scenarios::say;

use self::fleet::{Fleet, Run};
use tollgate_benches::rows::Rows;

const TAU: Duration = Duration::from_millis(100);

/// The sections of the curves.
pub const DEMAND: &str = "Demand";
/// By the number of processes.
pub const PROCESSES: &str = "Processes";
/// By the horizon of leases.
pub const HORIZON: &str = "Horizon";
/// The five scenarios of the tests.
pub const SCENARIOS: &str = "Scenarios";
/// By the burst, in tokens.
pub const BURST: &str = "Burst";
/// Load that comes and goes, by its pause in seconds.
pub const TURNS: &str = "Turns";
/// Load that comes and goes, by the number of processes.
pub const OVERSHOOT: &str = "Overshoot";
/// Many keys.
pub const KEYS: &str = "Keys";

/// A fleet in a section, and the mode's name.
struct FleetCase {
    section: &'static str,
    name: String,
    fleet: Fleet,
}

/// Runs all fleets. With `small`, short ones that show whether all works.
///
/// # Errors
///
/// There is no memory for a runtime.
pub fn measure(small: bool) -> io::Result<Rows> {
    let mut rows = Rows::default();
    let seconds = if small { 2.0 } else { 20.0 };
    let of_time = [demands, horizons, scenarios, bursts, turns].map(|cases| {
        // Of each curve, a few.
        cases(seconds).into_iter().step_by(if small { 4 } else { 1 }).collect()
    });
    let others = [processes(small, seconds), overshoot(small, seconds), keys(small)];
    for case in of_time.into_iter().chain(others).flatten() {
        for (mode, horizon) in [("exact", None), ("leased", case.fleet.horizon.or(Some(TAU)))] {
            // The horizon changes nothing there.
            if case.section == HORIZON && mode == "exact" {
                continue;
            }
            say(format_args!("{}, {}, {mode}", case.section, case.name));
            let fleet = Fleet { horizon, ..case.fleet.clone() };
            let before = std::time::Instant::now();
            let run =
                Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(fleet.run());
            write(&mut rows, &case, mode, &fleet, &run);
            rows.number([case.section, &case.name, mode, "run"], "s", before.elapsed().as_secs_f64());
        }
    }
    Ok(rows)
}

fn per_second(rate: u64, burst: u64) -> Quota {
    Quota::per_second(rate).burst(burst)
}

/// Four processes, whose demand together is a multiple of the rate.
fn demands(seconds: f64) -> Vec<FleetCase> {
    let parts = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, 8.0];
    let case = |part: f64| {
        let fleet = Fleet::new(per_second(1_000, 1_000), 4, 250.0 * part, seconds);
        FleetCase { section: DEMAND, name: part.to_string(), fleet }
    };
    parts.into_iter().map(case).collect()
}

/// Twice the rate, from a number of processes, on a quota of that a second.
fn processes(small: bool, seconds: f64) -> Vec<FleetCase> {
    let numbers: &[usize] = if small { &[1, 64] } else { &[1, 4, 16, 64, 250, 1_000] };
    let case = |&(rate, number): &(u64, usize)| {
        let demand = 2.0 * rate as f64 / number as f64;
        let fleet = Fleet::new(per_second(rate, rate), number, demand, seconds / 2.0);
        FleetCase { section: PROCESSES, name: format!("{number} on {rate}"), fleet }
    };
    let all: Vec<_> =
        [1_000, 10_000].into_iter().flat_map(|rate| numbers.iter().map(move |of| (rate, *of))).collect();
    all.iter().map(case).collect()
}

fn horizons(seconds: f64) -> Vec<FleetCase> {
    let case = |millis: u64| {
        let fleet =
            Fleet::new(per_second(1_000, 1_000), 4, 500.0, seconds).leased(Duration::from_millis(millis));
        FleetCase { section: HORIZON, name: millis.to_string(), fleet }
    };
    [10, 20, 50, 100, 200, 500, 1_000].into_iter().map(case).collect()
}

/// 16 processes at 100 a second on 1,000 a second: the horizon is cut to half of the burst.
fn bursts(seconds: f64) -> Vec<FleetCase> {
    let case = |burst: u64| {
        let fleet = Fleet::new(per_second(1_000, burst), 16, 100.0, seconds);
        FleetCase { section: BURST, name: burst.to_string(), fleet }
    };
    [20, 50, 100, 200, 500, 1_000].into_iter().map(case).collect()
}

fn scenarios(seconds: f64) -> Vec<FleetCase> {
    let skewed = vec![1_800.0, 100.0, 60.0, 40.0];
    let cases = [
        ("4 x 500/s on 1,000/s", Fleet::new(per_second(1_000, 1_000), 4, 500.0, seconds)),
        ("4 x 1,500/s on 10,000/s", Fleet::new(per_second(10_000, 10_000), 4, 1_500.0, seconds)),
        (
            "1,800 + 100 + 60 + 40/s on 1,000/s",
            Fleet { demands: skewed, ..Fleet::new(per_second(1_000, 1_000), 4, 0.0, seconds) },
        ),
        ("4 x 1,250/s on 10/s", Fleet::new(per_second(10, 10), 4, 1_250.0, seconds)),
        ("16 x 100/s on 1,000/s, burst 50", Fleet::new(per_second(1_000, 50), 16, 100.0, seconds)),
    ];
    let case = |(name, fleet): (&str, Fleet)| FleetCase { section: SCENARIOS, name: name.to_owned(), fleet };
    cases.into_iter().map(case).collect()
}

/// A second of load, and a pause in which the bucket fills while the leases are held.
fn turns(seconds: f64) -> Vec<FleetCase> {
    let case = |off: f64| {
        let fleet = Fleet::new(per_second(1_000, 1_000), 4, 2_000.0, seconds);
        FleetCase { section: TURNS, name: off.to_string(), fleet: Fleet { turns: Some((0.6, off)), ..fleet } }
    };
    [0.5, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0].into_iter().map(case).collect()
}

/// The same load with a pause in which the bucket is just full again, from a number of processes.
fn overshoot(small: bool, seconds: f64) -> Vec<FleetCase> {
    let numbers: &[usize] = if small { &[1, 64] } else { &[1, 2, 4, 16, 64, 250, 1_000] };
    let case = |&number: &usize| {
        let fleet = Fleet::new(per_second(1_000, 1_000), number, 8_000.0 / number as f64, seconds);
        FleetCase {
            section: OVERSHOOT,
            name: number.to_string(),
            fleet: Fleet { turns: Some((0.6, 1.2)), ..fleet },
        }
    };
    numbers.iter().map(case).collect()
}

/// Keys of 100 a second each, by their rank, from few processes and from many.
fn keys(small: bool) -> Vec<FleetCase> {
    let (keys, many, demand, seconds) =
        if small { (5_000, 50, 10_000.0, 0.5) } else { (1_000_000, 1_000, 100_000.0, 10.0) };
    let case = |processes: usize| {
        let fleet = Fleet::new(per_second(100, 100), processes, demand / processes as f64, seconds);
        let name = format!("{}, {} processes", count(keys, "key"), grouped(processes as u64));
        FleetCase { section: KEYS, name, fleet: Fleet { keys, ..fleet } }
    };
    [4, many].into_iter().map(case).collect()
}

fn write(rows: &mut Rows, case: &FleetCase, mode: &str, fleet: &Fleet, run: &Run) {
    let mut number =
        |measure, unit, value| rows.number([case.section, &case.name, mode, measure], unit, value);
    number("decisions", "1/s", run.decisions as f64 / fleet.seconds);
    number("granted", "1/s", run.granted as f64 / fleet.seconds);
    number("round trips", "1/s", run.calls as f64 / fleet.seconds);
    number("keys in calls", "1/s", run.ops as f64 / fleet.seconds);
    number("waited", "%", run.waited as f64 / run.decisions as f64 * 100.0);
    number("decisions a round trip", "", run.decisions as f64 / run.calls.max(1) as f64);
    number("over", "tokens", run.over.max(0.0));
    number("under", "%", run.under * 100.0);
    number("unused, at most", "tokens", run.unspent as f64);
}
