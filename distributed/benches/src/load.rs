//! Tasks that ask the limiters of a fleet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::{JoinSet, consume_budget};
use tokio::time::sleep_until;

use crate::limit::Limit;

/// Tasks of each limiter, of which each has one request at a time.
pub const TASKS: usize = 16;

/// A load on a fleet.
#[derive(Clone)]
pub struct Load {
    /// Keys, of which each request takes one by chance.
    pub keys: Arc<[String]>,
    /// Time of the load.
    pub time: Duration,
    /// Requests a second of all tasks; as fast as they are answered if it is `None`.
    pub rate: Option<f64>,
}

/// The outcome of a load.
#[derive(Clone)]
pub struct Lap {
    /// Number of decisions.
    pub decisions: u64,
    /// Number of granted decisions.
    pub granted: u64,
    /// Time from the first request to the last answer.
    pub elapsed: Duration,
    /// Nanoseconds of single decisions, of a load with a rate.
    pub times: Histogram<u64>,
}

impl Lap {
    fn new() -> Lap {
        // Up to 100 s, to a part in 1,000.
        let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order");
        Lap { decisions: 0, granted: 0, elapsed: Duration::ZERO, times }
    }

    fn add(&mut self, other: &Lap) {
        self.decisions += other.decisions;
        self.granted += other.granted;
        self.times.add(&other.times).expect("the bounds are the same");
    }
}

/// Runs a load on limiters.
pub async fn run<L: Limit>(limits: &[Arc<L>], load: &Load) -> Lap {
    let (mut tasks, begun) = (JoinSet::new(), Instant::now());
    let number = limits.len() * TASKS;
    for task in 0..number {
        let (limit, load, random) = (limits[task % limits.len()].clone(), load.clone(), Random::new(task));
        match load.rate {
            None => tasks.spawn(closed(limit, load, random, begun)),
            Some(rate) => tasks.spawn(paced(limit, load, random, begun, rate / number as f64)),
        };
    }
    let mut all = Lap::new();
    for lap in tasks.join_all().await {
        all.add(&lap);
    }
    Lap { elapsed: begun.elapsed(), ..all }
}

/// Asks again as soon as there is an answer.
async fn closed<L: Limit>(limit: Arc<L>, load: Load, mut random: Random, begun: Instant) -> Lap {
    let mut lap = Lap::new();
    while !lap.decisions.is_multiple_of(64) || begun.elapsed() < load.time {
        lap.granted += u64::from(limit.ask(random.of(&load.keys)).await);
        lap.decisions += 1;
        // A request that does not wait leaves the processor to others now and then.
        consume_budget().await;
    }
    lap
}

/// Asks at random times, by a rate.
async fn paced<L: Limit>(limit: Arc<L>, load: Load, mut random: Random, begun: Instant, rate: f64) -> Lap {
    let (mut lap, mut at) = (Lap::new(), 0.0);
    loop {
        at += -(1.0 - random.part()).ln() / rate;
        if at > load.time.as_secs_f64() {
            return lap;
        }
        sleep_until((begun + Duration::from_secs_f64(at)).into()).await;
        let asked = Instant::now();
        let granted = limit.ask(random.of(&load.keys)).await;
        lap.times.saturating_record(asked.elapsed().as_nanos() as u64);
        lap.granted += u64::from(granted);
        lap.decisions += 1;
    }
}

/// The generator of Marsaglia, of 64 bits.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: usize) -> Random {
        Random((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn of<'a>(&mut self, keys: &'a [String]) -> &'a str {
        &keys[(self.next() >> 20) as usize % keys.len()]
    }
}
