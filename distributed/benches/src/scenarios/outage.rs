//! Ten seconds of load on a server that is frozen from the third to the seventh.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tollgate::Quota;
use tollgate_benches::scenarios::say;
use tollgate_distributed::{OnOutage, Source};
use tollgate_test_servers::redis::Redis;

use crate::contenders::{Ours, PROCESSES};
use crate::limit::{Failure, Setup};
use crate::load::Random;
use tollgate_benches::rows::Rows;

/// The seconds at which the server is frozen and thawed, and the end.
pub const FROZEN: f64 = 3.0;
/// The second at which the server goes on.
pub const THAWED: f64 = 7.0;
/// The length of the load, in seconds.
pub const END: f64 = 10.0;

/// Seconds of a point of the timeline.
const STEP: f64 = 0.1;
/// Requests a second of each process, from that number of tasks.
const DEMAND: f64 = 500.0;
const TASKS: usize = 32;

/// The policies, by their names on the page.
pub const POLICIES: [(&str, OnOutage); 3] = [
    ("Local, a quarter each", OnOutage::Local { share: 0.25 }),
    ("Deny", OnOutage::Deny),
    ("Allow", OnOutage::Allow),
];

/// The phases of the table, with their begin and end in seconds.
pub const PHASES: [(&str, f64, f64); 5] = [
    ("before", 1.0, FROZEN),
    ("first 0.5 s", FROZEN, FROZEN + 0.5),
    ("rest of the outage", FROZEN + 0.5, THAWED),
    ("first second after", THAWED, THAWED + 1.0),
    ("later", THAWED + 1.0, END),
];

/// The rows of phases.
pub const PHASE: &str = "Outage";
/// The rows of the timeline.
pub const OVER_TIME: &str = "Outage, over time";

/// The sources of decisions, in the order of the table.
pub const SOURCES: [Source; 5] =
    [Source::Lease, Source::Shadow, Source::Store, Source::Fallback, Source::FailOpen];

/// One decision.
#[derive(Clone, Copy)]
struct Decision {
    asked: f64,
    micros: f64,
    source: Source,
    is_granted: bool,
}

/// Measures the decisions of each policy and mode.
///
/// # Errors
///
/// The server does not start.
pub async fn measure() -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    for (name, policy) in POLICIES {
        for mode in ["leased", "exact"] {
            say(format_args!("an outage, {name}, {mode}"));
            let decisions = run(policy, mode).await?;
            let case = format!("{name}, {mode}");
            write(&mut rows, &case, &decisions);
        }
    }
    Ok(rows)
}

async fn run(policy: OnOutage, mode: &str) -> Result<Vec<Decision>, Failure> {
    let mut server = Redis::start(&[])?;
    let setup = Setup { quota: Quota::per_second(1_000), url: server.url(), name: "outage".to_owned() };
    let mut limits = Vec::new();
    for _ in 0..PROCESSES {
        limits.push(Arc::new(Ours::with(mode, &setup, |builder| builder.on_outage(policy)).await?));
    }
    let (begun, decisions, mut tasks) = (Instant::now(), Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for task in 0..TASKS * PROCESSES {
        let limit = limits[task % PROCESSES].clone();
        tasks.spawn(ask(limit, Random::new(task), begun, decisions.clone()));
    }
    let at = |second: f64| sleep_until((begun + Duration::from_secs_f64(second)).into());
    at(FROZEN).await;
    server.process().freeze()?;
    at(THAWED).await;
    server.process().thaw()?;
    tasks.join_all().await;
    let decisions = decisions.lock().expect("no task panics").clone();
    Ok(decisions)
}

/// Asks at random times. A request that comes while another one of the task waits is asked after
/// it. Its time begins then.
async fn ask(limit: Arc<Ours>, mut random: Random, begun: Instant, decisions: Arc<Mutex<Vec<Decision>>>) {
    let (mut at, mut own) = (0.0, Vec::new());
    loop {
        at += -(1.0 - random.part()).ln() * TASKS as f64 / DEMAND;
        if at > END {
            break;
        }
        sleep_until((begun + Duration::from_secs_f64(at)).into()).await;
        let asked = Instant::now();
        let decided = limit.0.ask("one key").await;
        let source = match &decided {
            Ok(granted) => granted.source(),
            Err(denied) => denied.source(),
        };
        let micros = asked.elapsed().as_secs_f64() * 1e6;
        own.push(Decision { asked: at, micros, source, is_granted: decided.is_ok() });
    }
    decisions.lock().expect("no task panics").extend(own);
}

fn write(rows: &mut Rows, case: &str, decisions: &[Decision]) {
    for step in 0..(END / STEP).round() as usize {
        let (from, to) = (step as f64 * STEP, (step + 1) as f64 * STEP);
        let (point, time) = (format!("{:.2}", from + STEP / 2.0), from..to);
        times(rows, [OVER_TIME, case, &point], &[("p99", 0.99)], &within(decisions, &time));
        counts(rows, [OVER_TIME, case, &point], &[], decisions, time);
    }
    for (name, from, to) in PHASES {
        let measures = [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)];
        times(rows, [PHASE, case, name], &measures, &within(decisions, &(from..to)));
        counts(rows, [PHASE, case, name], &SOURCES, decisions, from..to);
    }
}

fn within<'a>(all: &'a [Decision], time: &Range<f64>) -> Vec<&'a Decision> {
    all.iter().filter(|decision| time.contains(&decision.asked)).collect()
}

fn times(rows: &mut Rows, place: [&str; 3], measures: &[(&str, f64)], of: &[&Decision]) {
    let mut micros: Vec<f64> = of.iter().map(|decision| decision.micros).collect();
    micros.sort_by(f64::total_cmp);
    let Some(last) = micros.len().checked_sub(1) else { return };
    for (measure, part) in measures {
        let [section, case, name] = place;
        rows.number([section, case, name, measure], "us", micros[(part * last as f64).round() as usize]);
    }
}

/// Writes the grants a second, and the decisions a second by each of some sources.
fn counts(rows: &mut Rows, place: [&str; 3], sources: &[Source], all: &[Decision], time: Range<f64>) {
    let (of, length) = (within(all, &time), time.end - time.start);
    let mut a_second = |measure: &str, is_counted: &dyn Fn(&Decision) -> bool| {
        let [section, case, name] = place;
        let count = of.iter().filter(|decision| is_counted(decision)).count();
        rows.number([section, case, name, measure], "1/s", count as f64 / length);
    };
    a_second("granted", &|decision| decision.is_granted);
    for source in sources {
        a_second(&format!("{source:?}"), &|decision| decision.source == *source);
    }
}
