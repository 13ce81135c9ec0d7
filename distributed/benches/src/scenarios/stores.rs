//! Contenders on a store, as fast as they answer and at a rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate::Quota;
use tollgate_benches::numbers::count;
use tollgate_benches::scenarios::say;
use tollgate_test_servers::any::AnyServer;

use super::effort::Effort;
use crate::contenders::{Fleet, ON_REDIS, on_redis, ours};
use crate::limit::{Failure, Setup};
use crate::load::{Lap, Load};
use crate::processor_time;
use crate::servers::Server;
use tollgate_benches::rows::Rows;

/// Requests a second of the load at a rate, of all processes.
pub const RATE: f64 = 4_000.0;

/// Names and units of the numbers of a case.
pub const MEASURES: [(&str, &str); 10] = [
    (SPEED, "1/s"),
    ("keys a call", ""),
    ("p50", "us"),
    ("p99", "us"),
    ("p99.9", "us"),
    ("calls", "in 1,000 decisions"),
    ("keys in calls", "in 1,000 decisions"),
    ("server", "us of a processor a decision"),
    ("client", "us of a processor a decision"),
    ("granted", "% of the ideal bucket"),
];

/// Decisions of tasks that ask again as soon as there is an answer.
pub const SPEED: &str = "decisions/s";

/// The end of the name of a ratio that is taken in each round.
pub const TO_EXACT: &str = " / exact";

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Granted,
    Refused,
    /// The load has twice the rate, after a pause in which the bucket filled.
    Half,
}

/// A load, and its outcome.
#[derive(Clone, Copy)]
struct Case {
    keys: usize,
    outcome: Outcome,
}

impl Case {
    const ALL: [Case; 5] = [
        Case { keys: 1, outcome: Outcome::Granted },
        Case { keys: 1, outcome: Outcome::Refused },
        Case { keys: 1, outcome: Outcome::Half },
        Case { keys: 10_000, outcome: Outcome::Granted },
        Case { keys: 10_000, outcome: Outcome::Refused },
    ];

    fn name(self) -> String {
        let outcome = match self.outcome {
            Outcome::Granted => "granted",
            Outcome::Refused => "refused",
            Outcome::Half => "twice the rate",
        };
        format!("{}, {outcome}", count(self.keys, "key"))
    }

    fn quota(self) -> Quota {
        match self.outcome {
            Outcome::Granted => Quota::per_second(100_000_000),
            Outcome::Refused => Quota::per_day(1),
            Outcome::Half => Quota::per_second(RATE as u64 / 2),
        }
    }

    /// Tells whether the decisions are those of the case, but for one in a hundred.
    fn is_kept(self, lap: &Lap) -> bool {
        let others = match self.outcome {
            Outcome::Granted => lap.decisions - lap.granted,
            Outcome::Refused => lap.granted,
            Outcome::Half => 0,
        };
        others * 100 <= lap.decisions
    }

    fn keys(self) -> Arc<[String]> {
        (0..self.keys).map(|key| format!("customer {key}")).collect()
    }
}

/// A contender in a case, and its numbers of each round.
struct Runner {
    name: &'static str,
    /// The limiters that are asked as fast as they answer, and those that are asked at a rate:
    /// these have no tokens from a time of higher demand.
    closed: Box<dyn Fleet>,
    paced: Box<dyn Fleet>,
    values: BTreeMap<&'static str, Vec<f64>>,
}

/// Measures all contenders on a store.
///
/// # Errors
///
/// The server does not answer.
pub async fn measure(effort: &Effort, store: &str, server: &mut Server) -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    for case in Case::ALL {
        say(format_args!("{store}, {}", case.name()));
        let mut runners = Vec::new();
        let names =
            if let Server::Any(AnyServer::Redis(_)) = server { &ON_REDIS[..] } else { &ON_REDIS[..2] };
        for &name in names {
            let closed = make(name, case, "closed", server).await?;
            let paced = make(name, case, "paced", server).await?;
            runners.push(Runner { name, closed, paced, values: BTreeMap::new() });
        }
        for round in 0..effort.rounds {
            for turn in 0..runners.len() {
                // No contender always comes after the same one.
                let runner = &mut runners[(turn + round) % names.len()];
                if case.outcome != Outcome::Half {
                    runner.as_fast_as_possible(effort, case).await;
                }
                runner.at_a_rate(effort, case, server).await;
            }
        }
        write(&mut rows, store, case, &runners);
    }
    Ok(rows)
}

/// Makes the limiters of a contender, and asks them until all decisions are those of the case.
async fn make(name: &str, case: Case, load: &str, server: &Server) -> Result<Box<dyn Fleet>, Failure> {
    let place = ON_REDIS.iter().position(|of| *of == name).unwrap_or_default();
    let prefix = format!("{place}-{load}-{}", case.name().replace([',', ' '], ""));
    let setup = Setup { quota: case.quota(), url: server.url(), name: prefix };
    let fleet = match server {
        Server::Any(AnyServer::Redis(_)) => on_redis(name, &setup).await?,
        _ => ours(name, &setup).await?,
    };
    // A granted load leaves tokens of a higher demand at hand, which go back within two seconds.
    let rate = (load == "paced" && case.outcome != Outcome::Refused).then_some(RATE);
    let load = Load { keys: case.keys(), time: Duration::from_millis(500), rate };
    for _ in 0..60 {
        if case.is_kept(&fleet.lap(&load).await) {
            return Ok(fleet);
        }
    }
    say(format_args!("{name}: not all of its decisions are those of the case"));
    Ok(fleet)
}

impl Runner {
    /// Asks again as soon as there is an answer, first for a while that does not count.
    async fn as_fast_as_possible(&mut self, effort: &Effort, case: Case) {
        let load = Load { keys: case.keys(), time: effort.closed, rate: None };
        self.closed.lap(&load).await;
        let [calls, keys] = self.closed.calls();
        let lap = self.closed.lap(&load).await;
        let [calls_after, keys_after] = self.closed.calls();
        let speed = lap.decisions as f64 / lap.elapsed.as_secs_f64();
        self.add(SPEED, if case.is_kept(&lap) { speed } else { f64::NAN });
        self.add("keys a call", (keys_after - keys) as f64 / (calls_after - calls) as f64);
    }

    async fn at_a_rate(&mut self, effort: &Effort, case: Case, server: &mut Server) {
        let server = server.process().map(|process| process.id());
        let times = || (server.map(processor_time::of).unwrap_or_default(), processor_time::of_this());
        let (before, calls) = (times(), self.paced.calls());
        let load = Load { keys: case.keys(), time: effort.paced, rate: Some(RATE) };
        let lap = self.paced.lap(&load).await;
        let (after, calls_after) = (times(), self.paced.calls());
        if !case.is_kept(&lap) {
            return;
        }
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.add(name, lap.times.value_at_quantile(part) as f64 / 1e3);
        }
        let decisions = lap.decisions as f64;
        for (place, name) in ["calls", "keys in calls"].into_iter().enumerate() {
            self.add(name, (calls_after[place] - calls[place]) as f64 * 1e3 / decisions);
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / decisions;
        if server.is_some() {
            self.add("server", micros(after.0 - before.0));
        }
        self.add("client", micros(after.1 - before.1));
        if case.outcome == Outcome::Half {
            let ideal = RATE / 2.0 * (1.0 + lap.elapsed.as_secs_f64());
            self.add("granted", lap.granted as f64 * 100.0 / ideal.min(decisions));
        }
    }

    fn add(&mut self, measure: &'static str, value: f64) {
        self.values.entry(measure).or_default().push(value);
    }

    fn of(&self, measure: &str) -> &[f64] {
        self.values.get(measure).map_or(&[], Vec::as_slice)
    }
}

fn write(rows: &mut Rows, store: &str, case: Case, runners: &[Runner]) {
    let exact = runners.iter().find(|runner| runner.name == "exact");
    for runner in runners {
        for (measure, unit) in MEASURES {
            let values = runner.of(measure);
            rows.rounds([store, &case.name(), runner.name, measure], unit, values);
            let base = exact.map_or(&[][..], |exact| exact.of(measure));
            let ratios: Vec<f64> = values.iter().zip(base).map(|(one, other)| one / other).collect();
            rows.rounds([store, &case.name(), runner.name, &format!("{measure}{TO_EXACT}")], "", &ratios);
        }
    }
}
