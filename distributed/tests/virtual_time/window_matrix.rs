//! The crossed matrix of windows: each kind beside each failure and each change of the requests, in
//! both modes, by four processes, and by one. Prints a line of figures for each cell:
//!
//! ```text
//! cargo test --test virtual_time matrix_of_windows -- --nocapture
//! ```
//!
//! Each of ten faults makes it red, planted by hand on 2026-11-29. In the law: a count ends 300 ms
//! early; the last request passes the limit; a give-back frees twice as many tokens; a sub-window
//! is freed early. In the limiter: a lease ends 100 ms late; tokens outlive their window; an answer
//! is used twice; a granted request gives its tokens back; each process has the whole limit in an
//! outage; the tokens of an outage are not charged. A refund in any window is red in `windows`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate::Window;
use tollgate_distributed::{DistributedLimiter, DistributedStats, OnOutage, Plan};

use crate::cells::cell::{FAILURES, Failure};
use crate::cells::random::Random;
use crate::matrix::{DEADLINE, RTT, TIMES, fail};
use crate::world::{BAD, Network, World};

/// An edge of the month, and so of each period: 2026-01-01 00:00 UTC.
const NEW_YEAR_US: u64 = 1_767_225_600_000_000;
/// The second of that edge. It is within the outages, and no failure begins or ends at an edge.
const EDGE: f64 = 4.7;
const PERIOD: f64 = 2.0;
/// The keys: one that is never at fault alone, and one that may be.
const KEYS: [u64; 2] = [1, BAD];
/// The time for which a request holds tokens that it refunds.
const HOLD: Duration = Duration::from_millis(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    FirstUse,
    Utc,
    Month,
    Sliding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    OneLimit,
    /// Each second request is under a plan with half of the limit.
    TwoPlans,
    /// The limit is halved and doubled, in one process after the other.
    NewLimit,
    Refunds,
    DroppedFutures,
}

const RULES: [Rule; 4] = [Rule::FirstUse, Rule::Utc, Rule::Month, Rule::Sliding];
const CHANGES: [Change; 5] =
    [Change::OneLimit, Change::TwoPlans, Change::NewLimit, Change::Refunds, Change::DroppedFutures];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    rule: Rule,
    failure: Failure,
    change: Change,
    is_exact: bool,
    processes: usize,
}

type Limiter = DistributedLimiter<u64, Network, Window>;

impl Cell {
    fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for rule in RULES {
            for failure in FAILURES {
                for change in CHANGES {
                    for (is_exact, processes) in [(true, 4), (false, 4), (true, 1), (false, 1)] {
                        // One process has each failure, and the changes beside others.
                        if processes > 1 || change == Change::OneLimit {
                            cells.push(Cell { rule, failure, change, is_exact, processes });
                        }
                    }
                }
            }
        }
        cells
    }

    /// Returns the limit: about half of the demand of a window, or most of a month's.
    fn limit(self) -> u64 {
        if self.rule == Rule::Month { 400 } else { 100 }
    }

    fn window(self, limit: u64) -> Window {
        let window = Window::per(limit, Duration::from_secs_f64(PERIOD));
        match self.rule {
            Rule::FirstUse => window,
            Rule::Utc => window.utc(),
            Rule::Month => Window::per_month(limit),
            Rule::Sliding => window.sliding(),
        }
    }

    fn fleet(self, world: &World) -> Vec<Limiter> {
        let policy = match self.failure {
            // A request without an answer is refused, so that each grant is the store's.
            Failure::Calm | Failure::LateAnswers | Failure::LostAnswers => OnOutage::Deny,
            _ => OnOutage::Local { share: 1.0 / self.processes as f64 },
        };
        let process = |_| {
            let builder = world.process(self.window(self.limit())).deadline(DEADLINE);
            let builder = builder.on_outage(policy);
            if self.is_exact { builder.exact() } else { builder }.build().unwrap()
        };
        (0..self.processes).map(process).collect()
    }

    /// Returns the windows of a key in seconds of the run. Those of a first use are the store's.
    fn windows(self, world: &World, key: u64, grants: &[Grant]) -> Vec<(f64, f64)> {
        let second = |us: u64| (us as f64 - NEW_YEAR_US as f64) / 1e6 + EDGE;
        match self.rule {
            Rule::Utc => {
                (0..5).map(|n| EDGE + PERIOD * (f64::from(n) - 3.0)).map(|at| (at, at + PERIOD)).collect()
            }
            Rule::Month => vec![(EDGE - 31.0 * 86_400.0, EDGE), (EDGE, EDGE + 31.0 * 86_400.0)],
            Rule::FirstUse => {
                let windows = world.windows.lock().unwrap();
                let own = windows.iter().filter(|(of, _)| *of == key);
                own.map(|(_, edge_us)| (second(*edge_us) - PERIOD, second(*edge_us))).collect()
            }
            // Each interval that begins with a grant.
            Rule::Sliding => grants.iter().map(|grant| (grant.begun, grant.begun + PERIOD)).collect(),
        }
    }

    /// Returns the most tokens of a window: the limit, another one for each restart in it, and a
    /// part of one for each outage that begins or ends in it.
    fn bound(self, key: u64, (from, to): (f64, f64), outages: &[(f64, f64)]) -> f64 {
        if self.failure == Failure::OneKeyBroken && key != BAD {
            return self.limit() as f64;
        }
        let ends_within = |&&(begun, ended): &&(f64, f64)| {
            let is_within = |at: f64| (from - 0.1..to + 0.1).contains(&at);
            // The end of an outage has the moment at which each process notices it before it.
            is_within(begun)
                || begun < to && is_within(TIMES.fails.1) && ended < TIMES.end
                || is_within(ended)
        };
        // The windows of each process lie otherwise.
        let is_local = !matches!(self.rule, Rule::Utc | Rule::Month);
        let more = outages
            .iter()
            .filter(|outage| ends_within(outage) || is_local && outage.0 < to && outage.1 > from);
        // A restart without data has the limit again. The shares of an outage are the limit
        // together, but an answer before it may be old, and the tokens of its last window are
        // charged late: 5 and 24 of 100 tokens are the most that were seen.
        let each = match self.failure {
            Failure::RestartedEmpty => 1.0,
            _ if is_local => 0.3,
            _ => 0.1,
        };
        self.limit() as f64 * (1.0 + each * more.count() as f64)
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: f64,
    number: usize,
    process: usize,
    key: u64,
    n: u64,
}

impl Event {
    /// Tells whether its tokens come back.
    fn comes_back(&self, cell: Cell) -> bool {
        match cell.change {
            Change::Refunds => self.number.is_multiple_of(3),
            Change::DroppedFutures => matches!(self.number % 4, 1 | 2),
            _ => false,
        }
    }
}

/// A grant, or a refund of a negative number of tokens. Times are seconds of the run.
#[derive(Clone, Copy, Debug)]
struct Grant {
    key: u64,
    begun: f64,
    at: f64,
    n: i64,
}

#[derive(Default)]
struct Record {
    grants: Vec<Grant>,
    refunded: u64,
    dropped: u64,
    by_plan: [u64; 2],
}

/// Returns requests of 100 tokens a second for each key.
fn requests(cell: Cell) -> Vec<Event> {
    let (mut random, mut events) = (Random(0x9E37_79B9_7F4A_7C15), Vec::new());
    for key in KEYS {
        let mut at = 0.05;
        while at < TIMES.end {
            let (process, n) = (random.below(cell.processes), 1 + random.below(3) as u64);
            events.push(Event { at, number: 0, process, key, n });
            at += random.gap(50.0);
        }
    }
    events.sort_by(|one, other| one.at.total_cmp(&other.at));
    events.iter_mut().enumerate().for_each(|(number, event)| event.number = number);
    events
}

async fn serve(
    limiter: Limiter,
    cell: Cell,
    event: Event,
    plan: Plan<Window>,
    origin: Instant,
    record: &Mutex<Record>,
) {
    let Event { key, n, number, .. } = event;
    let now = || origin.elapsed().as_secs_f64();
    let begun = now();
    let is_planned = cell.change == Change::TwoPlans && number % 2 == 1;
    let ask = async {
        match is_planned {
            true => limiter.key(&key).n(n).under(&plan).ask().await,
            false if number % 8 == 7 && cell.change == Change::OneLimit => {
                limiter.key(&key).n(n).try_acquire_local()
            }
            false => limiter.key(&key).n(n).ask().await,
        }
    };
    let drops = [None, Some(Duration::ZERO), Some(Duration::from_millis(3)), None][number % 4];
    let decision = match drops.filter(|_| cell.change == Change::DroppedFutures) {
        Some(after) => match timeout(after, ask).await {
            Ok(decision) => decision,
            Err(_) => return record.lock().unwrap().dropped += n,
        },
        None => ask.await,
    };
    if decision.is_err() {
        return;
    }
    let grant = Grant { key, begun, at: now(), n: n as i64 };
    {
        let mut record = record.lock().unwrap();
        record.by_plan[usize::from(is_planned)] += n;
        record.grants.push(grant);
    }
    if event.comes_back(cell) {
        sleep(HOLD).await;
        let at = now();
        limiter.refund(&key, n);
        let mut record = record.lock().unwrap();
        record.refunded += n;
        record.grants.push(Grant { begun: at, at, n: -grant.n, ..grant });
    }
}

/// Sends the requests, each at its time, and waits for their ends.
async fn send(cell: Cell, fleet: &[Limiter], events: &[Event], origin: Instant) -> Record {
    let record: Arc<Mutex<Record>> = Arc::default();
    let less = cell.window(cell.limit() / 2);
    let (mut tasks, mut turn) = (JoinSet::new(), 0);
    for event in events {
        sleep_until(origin + Duration::from_secs_f64(event.at)).await;
        while cell.change == Change::NewLimit && event.at > 0.45 + 0.21 * turn as f64 {
            let by = cell.processes;
            let rule = [less, cell.window(cell.limit())][turn / by % 2];
            fleet[turn % by].set_rule(rule).unwrap();
            turn += 1;
        }
        let limiter = fleet[event.process].clone();
        let plan = limiter.plan(less).unwrap();
        let (event, record) = (*event, record.clone());
        tasks.spawn(async move { serve(limiter, cell, event, plan, origin, &record).await });
        while tasks.try_join_next().is_some() {}
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    std::mem::take(&mut record.lock().unwrap())
}

/// The window of a key that is nearest to its bound.
#[derive(Clone, Copy, Debug)]
struct Fullest {
    granted: i64,
    bound: f64,
    from: f64,
}

/// Returns the net grants within a window. A request at an edge is in neither window.
fn within(grants: &[Grant], (from, to): (f64, f64)) -> i64 {
    let inside = grants.iter().filter(|grant| grant.begun >= from && grant.at < to);
    inside.map(|grant| grant.n).sum()
}

/// Returns the tokens that one process without failures would grant.
fn ideal(cell: Cell, key: u64, events: &[Event]) -> f64 {
    let limit = cell.limit() as f64;
    let demand = |from: f64, to: f64| -> f64 {
        let own = events.iter().filter(|of| of.key == key && !of.comes_back(cell));
        own.filter(|of| (from..to).contains(&of.at)).map(|of| of.n as f64).sum()
    };
    let by_edges = |edges: &[f64]| edges.windows(2).map(|of| demand(of[0], of[1]).min(limit)).sum();
    match cell.rule {
        Rule::Utc => by_edges(&[0.0, 0.7, 2.7, 4.7, 6.7, 8.7, 9.0]),
        Rule::Month => by_edges(&[0.0, EDGE, 9.0]),
        // A little more than a period for each.
        Rule::FirstUse => (limit * 4.3).min(demand(0.0, 9.0)),
        Rule::Sliding => (limit * (1.0 + 7.0 / 2.125)).min(demand(0.0, 9.0)),
    }
}

/// Returns the part of the ideal grants that a key has at least.
fn least(cell: Cell, key: u64) -> f64 {
    let is_less = matches!(cell.change, Change::TwoPlans | Change::NewLimit);
    let is_sliding = cell.rule == Rule::Sliding;
    let calm = match is_less {
        true => 0.45,
        // Unused tokens of a lease end with each sub-window, of 125 ms.
        false if is_sliding && !cell.is_exact => 0.6,
        false if is_sliding => 0.8,
        false => 0.85,
    };
    match cell.failure {
        Failure::Calm => calm,
        Failure::OneKeyBroken if key != BAD => calm,
        _ if is_less => 0.35,
        _ if is_sliding => 0.4,
        _ => 0.55,
    }
}

/// Tells whether the cell had its failure and its change.
fn is_whole(cell: Cell, stats: &[DistributedStats], record: &Record) -> bool {
    let sum = |count: fn(&DistributedStats) -> u64| stats.iter().map(count).sum::<u64>();
    let [late, unknown, permanent, opened, by_share] = [
        sum(|of| of.calls_late),
        sum(|of| of.calls_unknown),
        sum(|of| of.calls_permanent),
        sum(|of| of.breaker_opened),
        sum(|of| of.by_fallback),
    ];
    let all = cell.processes as u64;
    let failed = match cell.failure {
        Failure::Calm => late + unknown + permanent + opened + by_share == 0,
        Failure::LateAnswers => late >= 4,
        Failure::LostAnswers => unknown >= 4,
        Failure::StoreDown | Failure::RestartedEmpty => opened >= all && by_share > 20,
        Failure::StoreBack => opened >= all && late >= 1 && by_share > 20,
        Failure::OneKeyBroken => opened == 0 && permanent > 5 && by_share > 20,
    };
    let changed = match cell.change {
        Change::OneLimit | Change::NewLimit => true,
        Change::TwoPlans => record.by_plan.iter().all(|granted| *granted > 10),
        Change::Refunds => record.refunded > 50,
        Change::DroppedFutures => record.dropped > 20,
    };
    failed && changed
}

/// Runs a cell on a clock of its own. Returns its line of the table, and its faults.
fn line(cell: Cell) -> (String, Vec<String>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::at(NEW_YEAR_US - (EDGE * 1e6) as u64, RTT);
        let (fleet, events) = (cell.fleet(&world), requests(cell));
        let (record, outages) =
            tokio::join!(send(cell, &fleet, &events, world.begun()), fail(cell.failure, &world));
        let stats: Vec<_> = fleet.iter().map(|limiter| limiter.stats()).collect();
        let (mut text, mut faults) = (format!("{cell:?}"), Vec::new());
        for key in KEYS {
            let own: Vec<Grant> = record.grants.iter().copied().filter(|grant| grant.key == key).collect();
            let fullest = cell.windows(&world, key, &own).into_iter().map(|window| Fullest {
                granted: within(&own, window),
                bound: cell.bound(key, window, &outages),
                from: window.0,
            });
            let margin = |of: &Fullest| of.bound - of.granted as f64;
            let fullest = fullest.min_by(|one, other| margin(one).total_cmp(&margin(other))).unwrap();
            if margin(&fullest) < 0.0 {
                faults.push(format!("{cell:?}: key {key} is above its bound: {fullest:?}"));
            }
            let granted: i64 = own.iter().map(|grant| grant.n).sum();
            let part = granted as f64 / ideal(cell, key, &events);
            if part < least(cell, key) {
                faults.push(format!("{cell:?}: key {key} has {part:.2} of the ideal grants"));
            }
            text += &format!(
                " | {:4} of {:4} from {:5.2} s, {part:4.2}",
                fullest.granted, fullest.bound, fullest.from
            );
        }
        if !is_whole(cell, &stats, &record) {
            faults.push(format!("{cell:?}: it had no failure, or no change: {stats:?}"));
        }
        (text, faults)
    })
}

/// No window has more than its bound, and none far less than the limit.
#[test]
fn matrix_of_windows() {
    let (cells, next) = (Cell::all(), AtomicUsize::new(0));
    let lines: Mutex<BTreeMap<usize, _>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let Some(cell) = cells.get(index) else { return };
                    let ended = line(*cell);
                    lines.lock().unwrap().insert(index, ended);
                }
            });
        }
    });
    let (lines, faults): (Vec<_>, Vec<_>) = lines.into_inner().unwrap().into_values().unzip();
    println!("{}", lines.join("\n"));
    let faults: Vec<String> = faults.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
