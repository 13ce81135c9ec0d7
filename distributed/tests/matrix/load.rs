//! The requests of a cell, and their grants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate_distributed::{DistributedLimiter, SharedDecision, SharedPlan, Store};

use super::cell::{BURSTY, Cell, CellRule, Change, MOVED, Rule, STEADY};
use super::granted::Granted;
use super::random::Random;

/// The seconds of a run: those with the failure, and the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) fails: (f64, f64),
    pub(crate) end: f64,
    /// The period of a window.
    pub(crate) period: f64,
    /// The parts of a limit that an outage adds to a window: of one that all processes have alike,
    /// and of one that each process begins by itself.
    pub(crate) adds: [f64; 2],
}

/// The time for which a request holds tokens that it refunds.
const HOLD: Duration = Duration::from_millis(40);

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Asks,
    /// It does not wait.
    Tries,
    /// It is dropped, after a time.
    Drops(Duration),
}

/// A request of a process for `n` tokens of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) at: f64,
    pub(crate) process: usize,
    pub(crate) key: u64,
    pub(crate) n: u64,
    number: usize,
    end: End,
    /// Whether its tokens are given back a moment later.
    refunds: bool,
}

impl Event {
    /// Returns the seconds after which the tokens come back, if they do.
    pub(crate) fn back_after(&self) -> Option<f64> {
        match self.end {
            End::Drops(after) => Some(after.as_secs_f64() + 0.01),
            End::Asks | End::Tries => self.refunds.then_some(HOLD.as_secs_f64()),
        }
    }
}

/// A grant, or a refund of a negative number of tokens. Times are seconds of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) key: u64,
    pub(crate) process: usize,
    pub(crate) begun: f64,
    pub(crate) at: f64,
    pub(crate) n: i64,
}

/// The grants of a run, and the tokens that came back: the key, the time and the tokens.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) grants: Vec<Grant>,
    pub(crate) back: Vec<(u64, f64, u64)>,
    /// Whether a breaker has opened.
    pub(crate) opened: bool,
    /// The begin of the run by the clock of the store, in microseconds since 1970.
    pub(crate) begun_us: u64,
    pub(crate) windows: Granted,
    pub(crate) refunded: u64,
    pub(crate) dropped: u64,
    pub(crate) by_plan: [u64; 2],
}

/// Returns the requests of a cell, in the order of their times.
pub(crate) fn requests(cell: Cell, times: Times, seed: u64) -> Vec<Event> {
    if cell.rule != Rule::Bucket {
        return requests_of_windows(cell, times, seed);
    }
    let (mut random, mut events) = (Random(seed), Vec::new());
    let mut add = |random: &mut Random, at: f64, process: usize, key: u64, most: usize| {
        let number = events.len();
        let n = 1 + random.below(most) as u64;
        let end = match (cell.change, number % 8) {
            (Change::DroppedFutures, 0 | 3) => End::Drops(Duration::ZERO),
            (Change::DroppedFutures, 6) => End::Drops(Duration::from_millis(1)),
            (_, 7) if key == STEADY => End::Tries,
            _ => End::Asks,
        };
        let n = if end == End::Tries { 1 } else { n };
        let refunds = cell.change == Change::Refunds && matches!(number % 8, 0 | 3 | 6);
        events.push(Event { at, process, key, n, number, end, refunds });
    };
    // Twice the rate, by requests for 1 to 5 tokens.
    let mut at = 0.0;
    while at < times.end {
        let process = random.below(cell.processes);
        add(&mut random, at, process, STEADY, 5);
        at += random.gap(67.0);
    }
    // More than twice the burst, each time that the bucket is nearly full again.
    for turn in 0..((times.end - 0.1) / 0.9).ceil() as usize {
        for request in 0..60 {
            add(&mut random, 0.1 + 0.9 * turn as f64, request % cell.processes, BURSTY, 7);
        }
    }
    let mut at = times.fails.0 / 4.0;
    while at < times.end {
        let is_before = at < times.fails.0;
        let process = if is_before { 0 } else { random.below(cell.processes) };
        add(&mut random, at, process, MOVED, 5);
        at += random.gap(67.0);
    }
    events.sort_by(|one, other| one.at.total_cmp(&other.at));
    events
}

/// Returns requests of 100 tokens a second for each key of a window.
fn requests_of_windows(cell: Cell, times: Times, seed: u64) -> Vec<Event> {
    let (mut random, mut events) = (Random(seed), Vec::new());
    for key in cell.keys() {
        let mut at = 0.05;
        while at < times.end {
            let (process, n) = (random.below(cell.processes), 1 + random.below(3) as u64);
            events.push(Event { at, process, key: *key, n, number: 0, end: End::Asks, refunds: false });
            at += random.gap(50.0);
        }
    }
    events.sort_by(|one, other| one.at.total_cmp(&other.at));
    for (number, event) in events.iter_mut().enumerate() {
        event.number = number;
        event.end = match cell.change {
            Change::OnePlan if number % 8 == 7 => End::Tries,
            Change::DroppedFutures if number % 4 == 1 => End::Drops(Duration::ZERO),
            Change::DroppedFutures if number % 4 == 2 => End::Drops(Duration::from_millis(3)),
            _ => End::Asks,
        };
        // The requests that are granted before they are dropped, too.
        event.refunds = match cell.change {
            Change::Refunds => number % 3 == 0,
            _ => matches!(event.end, End::Drops(_)),
        };
    }
    events
}

/// A run: its limiters and its record, from its begin on.
pub(crate) struct Run<S, R> {
    cell: Cell,
    rules: [R; 2],
    begun: Instant,
    limiters: Vec<DistributedLimiter<u64, S, R>>,
    record: Arc<Mutex<Record>>,
}

impl<S: Store, R: CellRule> Run<S, R> {
    pub(crate) fn new(
        cell: Cell,
        times: Times,
        begun: Instant,
        limiters: Vec<DistributedLimiter<u64, S, R>>,
    ) -> Run<S, R> {
        Run { cell, rules: R::of(cell, times), begun, limiters, record: Arc::default() }
    }

    /// Sends the requests, each at its time, and waits for their ends.
    pub(crate) async fn send(self, events: &[Event]) -> Record {
        let plans = self.rules.map(|rule| self.limiters[0].plan(rule).unwrap());
        let (mut tasks, mut turn) = (JoinSet::new(), 0);
        for event in events {
            sleep_until(self.begun + Duration::from_secs_f64(event.at)).await;
            // Each process has the other rule a moment after the one before.
            while self.cell.change == Change::NewRule && event.at > 0.45 + 0.21 * turn as f64 {
                let by = self.cell.processes;
                self.limiters[turn % by].set_rule(self.rules[(turn / by + 1) % 2]).unwrap();
                turn += 1;
            }
            let limiter = self.limiters[event.process].clone();
            let which = event.number % 2;
            let plan = (self.cell.change == Change::TwoPlans).then(|| plans[which].clone());
            let (event, begun, record) = (*event, self.begun, self.record.clone());
            tasks.spawn(async move { serve(&limiter, event, plan, begun, &record).await });
            while tasks.try_join_next().is_some() {}
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut self.record.lock().unwrap())
    }
}

async fn ask<S: Store, R: CellRule>(
    limiter: &DistributedLimiter<u64, S, R>,
    event: Event,
    plan: Option<&SharedPlan<R>>,
) -> SharedDecision {
    match plan {
        Some(plan) => limiter.key(&event.key).n(event.n).under(plan).ask().await,
        None => limiter.key(&event.key).n(event.n).ask().await,
    }
}

async fn serve<S: Store, R: CellRule>(
    limiter: &DistributedLimiter<u64, S, R>,
    event: Event,
    plan: Option<SharedPlan<R>>,
    origin: Instant,
    record: &Mutex<Record>,
) {
    let Event { key, n, process, .. } = event;
    let now = || origin.elapsed().as_secs_f64();
    let begun = now();
    let decision = match event.end {
        End::Tries => match &plan {
            Some(plan) => limiter.key(&key).n(n).under(plan).try_acquire_local(),
            None => limiter.key(&key).n(n).try_acquire_local(),
        },
        End::Drops(after) => match timeout(after, ask(limiter, event, plan.as_ref())).await {
            Ok(decision) => decision,
            Err(_) => {
                let mut record = record.lock().unwrap();
                record.dropped += n;
                return record.back.push((key, now(), n));
            }
        },
        _ => ask(limiter, event, plan.as_ref()).await,
    };
    if decision.is_err() {
        return;
    }
    let grant = Grant { key, process, begun, at: now(), n: n as i64 };
    {
        let mut record = record.lock().unwrap();
        record.by_plan[event.number % 2] += n;
        record.grants.push(grant);
    }
    if event.refunds {
        sleep(HOLD).await;
        // Before the refund, so that no request that has the tokens is earlier.
        let at = now();
        limiter.refund(&key, n);
        let mut record = record.lock().unwrap();
        record.refunded += n;
        record.back.push((key, at, n));
        record.grants.push(Grant { begun: at, at, n: -grant.n, ..grant });
    }
}
