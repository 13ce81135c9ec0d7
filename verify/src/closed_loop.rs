//! A proxy with a limit in front of a server that queues, simulated on the mock clock over the
//! crate's own `Inflight` or `Adaptive`.
//!
//! The server has workers and one queue in order of arrival. A request holds a worker for its
//! service time, which is log-normal with a mean of 50 ms, and then takes some time more on its way
//! back. A user gives up after a second. The server does not know of that, and does the work all
//! the same. An answer within that second is good. Between 60 s and 120 s something is different.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use tollgate_adaptive::Priority;
use tollgate_testing::Random;

use crate::disturbance::{MEAN, Scenario, WORKERS};
use crate::fleet::{Fleet, Place};

const SECOND: u64 = 1_000_000_000;
const DEADLINE: u64 = SECOND;
const SIGMA: f64 = 0.5;
const END: u64 = 180;
/// Places of the server's queue.
const QUEUE: usize = 10_000;

/// The results of one run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Good answers during the disturbance, as a share of the possible ones.
    pub goodput: f64,
    /// The p90 of the last 30 s of the disturbance, in seconds.
    pub p90: f64,
    /// The median of these 30 s, in seconds.
    pub median: f64,
    /// The refused share of the attempts during the disturbance.
    pub refused: f64,
    /// The same without its first three seconds: a limit rises by an eighth in an interval.
    pub refused_later: f64,
    /// The coefficient of variation of the limit in these 30 s.
    pub variation: f64,
    /// Seconds from the end of the disturbance to five seconds in a row with nine tenths of the
    /// possible answers.
    pub back: f64,
    /// Served shares of the classes in these 30 s: a fifth, three fifths and a fifth of the load.
    pub classes: [f64; 3],
    /// The least and the highest limit at any attempt.
    pub span: (f64, f64),
    /// The three minutes, second by second.
    pub seconds: Vec<Second>,
}

/// A second of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// The mean limit.
    pub limit: f64,
    /// The p90 of the good answers, in seconds, if there were any.
    pub p90: Option<f64>,
    /// Good answers, as a share of the possible ones.
    pub goodput: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Retry(usize),
    Served(usize),
    Answer(usize),
    GiveUp(usize),
    Look,
}

struct Call {
    class: usize,
    tries: u32,
    /// The second of the user's first attempt.
    first: usize,
    start: u64,
    place: Option<Place>,
}

/// Returns a time of a log-normal distribution of this mean.
fn log_normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    let normal = radius * (2.0 * std::f64::consts::PI * random.unit()).cos();
    (MEAN.ln() - SIGMA * SIGMA / 2.0 + SIGMA * normal).exp()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

struct Run<'a> {
    scenario: Scenario,
    fleet: &'a Fleet,
    random: Random,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    calls: Vec<Call>,
    queue: VecDeque<usize>,
    busy: f64,
    offered: Vec<f64>,
    good: Vec<f64>,
    late: Vec<f64>,
    refused: Vec<f64>,
    attempts: Vec<f64>,
    latencies: Vec<Vec<u64>>,
    by_class: Vec<[[f64; 2]; 3]>,
    limits: Vec<(u64, f64)>,
    /// The least and the highest limit at an attempt.
    span: (f64, f64),
}

impl Run<'_> {
    fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn second(&self) -> usize {
        ((self.now / SECOND) as usize).min(END as usize - 1)
    }

    fn seconds(&self) -> f64 {
        self.now as f64 / 1e9
    }

    fn workers(&self) -> f64 {
        let base = (WORKERS * self.scenario.scale).round().max(1.0);
        if self.scenario.inside(self.seconds()) {
            (base * self.scenario.workers).round().max(1.0)
        } else {
            base
        }
    }

    fn service(&mut self) -> u64 {
        let mut seconds = log_normal(&mut self.random);
        if self.scenario.bimodal {
            seconds *= if self.random.unit() < 0.05 { 10.0 } else { 0.5 / 0.95 };
        }
        if self.scenario.inside(self.seconds()) {
            seconds *= self.scenario.slow;
            // One worker cannot be halved: it takes twice as long.
            if WORKERS * self.scenario.scale <= 1.0 {
                seconds /= self.scenario.workers;
            }
        }
        nanos(seconds)
    }

    fn start_next(&mut self) {
        while self.busy < self.workers() {
            let Some(call) = self.queue.pop_front() else { return };
            self.busy += 1.0;
            let at = self.now + self.service();
            self.push(at, Event::Served(call));
        }
    }

    fn attempt(&mut self, class: usize, tries: u32, first: usize) {
        let second = self.second();
        self.attempts[second] += 1.0;
        let which = (self.random.unit() * self.fleet.len() as f64) as usize;
        let limit = self.fleet.limit();
        self.span = (self.span.0.min(limit), self.span.1.max(limit));
        let priority = match class {
            _ if !self.fleet.priorities => Priority::Critical,
            0 => Priority::Critical,
            1 => Priority::Default,
            _ => Priority::Sheddable,
        };
        let call = Call { class, tries, first, start: self.now, place: None };
        match self.fleet.enter(which, priority) {
            None => {
                self.refused[second] += 1.0;
                self.again(call);
            }
            Some(place) if self.queue.len() >= QUEUE => {
                place.overloaded(Duration::ZERO);
                self.again(call);
            }
            Some(place) => {
                self.calls.push(Call { place: Some(place), ..call });
                let number = self.calls.len() - 1;
                self.queue.push_back(number);
                self.push(self.now + DEADLINE, Event::GiveUp(number));
                self.start_next();
            }
        }
    }

    /// The user tries again after a random time.
    fn again(&mut self, call: Call) {
        if call.tries < self.scenario.retries {
            let most = 0.1 * f64::from(2_u32 << call.tries);
            let at = self.now + nanos(self.random.unit() * most);
            self.calls.push(Call { tries: call.tries + 1, place: None, ..call });
            self.push(at, Event::Retry(self.calls.len() - 1));
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Arrive => {
                let rate = self.scenario.rate(self.seconds());
                let at = self.now + nanos(self.random.exponential(rate));
                self.push(at, Event::Arrive);
                let class = match self.random.unit() {
                    unit if unit < 0.2 => 0,
                    unit if unit < 0.8 => 1,
                    _ => 2,
                };
                let second = self.second();
                self.offered[second] += 1.0;
                self.by_class[second][class][0] += 1.0;
                self.attempt(class, 0, second);
            }
            Event::Retry(call) => {
                let Call { class, tries, first, .. } = self.calls[call];
                self.attempt(class, tries, first);
            }
            Event::Served(call) => {
                self.busy -= 1.0;
                self.start_next();
                let extra = if self.scenario.inside(self.seconds()) { self.scenario.extra } else { 0.0 };
                self.push(self.now + nanos(extra), Event::Answer(call));
            }
            Event::Answer(number) => {
                let Some(place) = self.calls[number].place.take() else { return };
                let errors = if self.scenario.inside(self.seconds()) { self.scenario.errors } else { 0.0 };
                if errors > 0.0 && self.random.unit() < errors {
                    place.failed();
                    return;
                }
                let second = self.second();
                let Call { class, first, start, .. } = self.calls[number];
                place.answered(Duration::from_nanos(self.now - start));
                self.good[second] += 1.0;
                self.by_class[first][class][1] += 1.0;
                self.latencies[second].push(self.now - start);
            }
            Event::GiveUp(number) => {
                // The proxy's own time-out.
                let Some(place) = self.calls[number].place.take() else { return };
                place.overloaded(Duration::from_nanos(DEADLINE));
                let second = self.second();
                self.late[second] += 1.0;
                let Call { class, tries, first, start, .. } = self.calls[number];
                self.again(Call { class, tries, first, start, place: None });
            }
            Event::Look => {
                self.limits.push((self.now, self.fleet.limit()));
                self.push(self.now + SECOND / 4, Event::Look);
                // Workers that came back.
                self.start_next();
            }
        }
    }

    /// Returns the latency, in seconds, that a share of the answers does not exceed.
    fn latency(&self, seconds: Range<usize>, share: f64) -> Option<f64> {
        let mut all: Vec<u64> = self.latencies[seconds].iter().flatten().copied().collect();
        all.sort_unstable();
        all.get((share * all.len() as f64) as usize).map(|latency| *latency as f64 / 1e9)
    }

    fn limits(&self, seconds: Range<usize>) -> Vec<f64> {
        let span = (seconds.start as u64 * SECOND)..(seconds.end as u64 * SECOND);
        self.limits.iter().filter(|(at, _)| span.contains(at)).map(|(_, limit)| *limit).collect()
    }

    fn ideal(&self, seconds: Range<usize>) -> f64 {
        seconds.map(|second| self.scenario.ideal(second as u64)).sum()
    }

    fn second_of(&self, second: usize) -> Second {
        let one = second..second + 1;
        Second {
            limit: mean(&self.limits(one.clone())),
            p90: self.latency(one.clone(), 0.9),
            goodput: self.good[second] / self.ideal(one),
        }
    }

    fn outcome(&self) -> Outcome {
        let until = self.scenario.until as usize;
        let steady = until.saturating_sub(30).max(60)..until;
        let sum = |of: &[f64], range: Range<usize>| of[range].iter().sum::<f64>();
        let refused =
            |range: Range<usize>| sum(&self.refused, range.clone()) / sum(&self.attempts, range).max(1.0);
        let limits = self.limits(steady.clone());
        let average = mean(&limits);
        let squares: Vec<f64> = limits.iter().map(|limit| (limit - average).powi(2)).collect();
        let recovered = |second: usize| {
            let range = second..second + 5;
            let admitted = (sum(&self.attempts, range.clone()) - sum(&self.refused, range.clone())).max(1.0);
            sum(&self.good, range.clone()) >= 0.9 * self.ideal(range.clone())
                && sum(&self.late, range) <= 0.02 * admitted
        };
        let back = (until..END as usize - 5).find(|second| recovered(*second));
        let classes = std::array::from_fn(|class| {
            let of = |which: usize| {
                self.by_class[steady.clone()].iter().map(|second| second[class][which]).sum::<f64>()
            };
            of(1) / of(0).max(1.0)
        });
        Outcome {
            goodput: sum(&self.good, 60..until) / self.ideal(60..until),
            p90: self.latency(steady.clone(), 0.9).unwrap_or(f64::INFINITY),
            median: self.latency(steady, 0.5).unwrap_or(f64::INFINITY),
            refused: refused(60..until),
            refused_later: refused(63..until),
            variation: mean(&squares).sqrt() / average,
            back: back.map_or(f64::INFINITY, |second| (second - until) as f64),
            classes,
            span: self.span,
            seconds: (0..END as usize).map(|second| self.second_of(second)).collect(),
        }
    }
}

/// Runs a scenario of three minutes.
///
/// It has a thread of its own: a thread counts its refusals, and looks at the clock at some of them
/// only. So a run is the same whatever ran before.
///
/// # Panics
///
/// Panics if the limit does.
#[must_use]
pub fn run(scenario: Scenario, fleet: &Fleet, seed: u64) -> Outcome {
    thread::scope(|scope| scope.spawn(|| simulate(scenario, fleet, seed)).join()).expect("a run ends")
}

fn simulate(scenario: Scenario, fleet: &Fleet, seed: u64) -> Outcome {
    let seconds = END as usize;
    let mut run = Run {
        scenario,
        fleet,
        random: Random(seed),
        now: 0,
        events: BinaryHeap::new(),
        number: 0,
        calls: Vec::new(),
        queue: VecDeque::new(),
        busy: 0.0,
        offered: vec![0.0; seconds],
        good: vec![0.0; seconds],
        late: vec![0.0; seconds],
        refused: vec![0.0; seconds],
        attempts: vec![0.0; seconds],
        latencies: vec![Vec::new(); seconds],
        by_class: vec![[[0.0; 2]; 3]; seconds],
        limits: Vec::new(),
        span: (f64::INFINITY, 0.0),
    };
    run.push(0, Event::Arrive);
    run.push(0, Event::Look);
    while let Some(Reverse((at, _, event))) = run.events.pop() {
        if at >= END * SECOND {
            break;
        }
        fleet.mock.advance(Duration::from_nanos(at - run.now));
        run.now = at;
        run.step(event);
    }
    run.outcome()
}
