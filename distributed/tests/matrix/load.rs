//! The requests of a cell, and their grants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate_distributed::{Decision, DistributedLimiter, Plan, Store};

use super::cell::{BURSTY, Cell, Change, MOVED, OTHER, QUOTA, STEADY};
use super::random::Random;

/// The seconds of a run: those with the failure, and the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) fails: (f64, f64),
    pub(crate) end: f64,
}

/// The time for which a request holds tokens that it refunds.
const HOLD: Duration = Duration::from_millis(40);

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Asks,
    /// It does not wait.
    Tries,
    /// Its tokens are given back a moment later.
    Refunds,
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
}

impl Event {
    /// Returns the seconds after which the tokens come back, if they do.
    pub(crate) fn back_after(&self) -> Option<f64> {
        match self.end {
            End::Asks | End::Tries => None,
            End::Refunds => Some(HOLD.as_secs_f64()),
            End::Drops(after) => Some(after.as_secs_f64() + 0.01),
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
    pub(crate) refunded: u64,
    pub(crate) dropped: u64,
    pub(crate) by_plan: [u64; 2],
}

/// Returns the requests of a cell, in the order of their times.
pub(crate) fn requests(cell: Cell, times: Times, seed: u64) -> Vec<Event> {
    let (mut random, mut events) = (Random(seed), Vec::new());
    let mut add = |random: &mut Random, at: f64, process: usize, key: u64, most: usize| {
        let number = events.len();
        let n = 1 + random.below(most) as u64;
        let end = match (cell.change, number % 8) {
            (Change::Refunds, 0 | 3 | 6) => End::Refunds,
            (Change::DroppedFutures, 0 | 3) => End::Drops(Duration::ZERO),
            (Change::DroppedFutures, 6) => End::Drops(Duration::from_millis(1)),
            (_, 7) if key == STEADY => End::Tries,
            _ => End::Asks,
        };
        let n = if end == End::Tries { 1 } else { n };
        events.push(Event { at, process, key, n, number, end });
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

/// A run: its limiters and its record, from its begin on.
pub(crate) struct Run<S> {
    cell: Cell,
    begun: Instant,
    limiters: Vec<DistributedLimiter<u64, S>>,
    record: Arc<Mutex<Record>>,
}

impl<S: Store> Run<S> {
    pub(crate) fn new(cell: Cell, begun: Instant, limiters: Vec<DistributedLimiter<u64, S>>) -> Run<S> {
        Run { cell, begun, limiters, record: Arc::default() }
    }

    /// Sends the requests, each at its time, and waits for their ends.
    pub(crate) async fn send(self, events: &[Event]) -> Record {
        let plans = [QUOTA, OTHER].map(|quota| self.limiters[0].plan(quota).unwrap());
        let (mut tasks, mut turn) = (JoinSet::new(), 0);
        for event in events {
            sleep_until(self.begun + Duration::from_secs_f64(event.at)).await;
            // Each process has the other quota a moment after the one before.
            while self.cell.change == Change::NewQuota && event.at > 0.45 + 0.21 * turn as f64 {
                let by = self.cell.processes;
                self.limiters[turn % by].set_rule([OTHER, QUOTA][turn / by % 2]).unwrap();
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

async fn ask<S: Store>(limiter: &DistributedLimiter<u64, S>, event: Event, plan: Option<&Plan>) -> Decision {
    match plan {
        Some(plan) => limiter.key(&event.key).n(event.n).under(plan).ask().await,
        None => limiter.key(&event.key).n(event.n).ask().await,
    }
}

async fn serve<S: Store>(
    limiter: &DistributedLimiter<u64, S>,
    event: Event,
    plan: Option<Plan>,
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
    if event.end == End::Refunds {
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
