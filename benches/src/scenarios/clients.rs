//! The tokens that clients get under each algorithm, on a mock clock.

use std::collections::VecDeque;
use std::time::Duration;

use tollgate::{Clock, Quota, TokenBucket, Window, WindowCounter};

const LIMIT: u64 = 60;
const PERIOD: u64 = 60_000;
/// Periods that are simulated.
const PERIODS: u64 = 40;

/// The tokens that a client got under an algorithm.
pub struct Client {
    /// Name of the client.
    pub client: &'static str,
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Milliseconds of the grants of a token.
    pub grants: Vec<u64>,
}

/// A limit of 60 tokens a minute: takes a token, the given milliseconds after the take before.
type Limit = Box<dyn FnMut(u64) -> bool>;

/// Returns four clients of 40 minutes under each algorithm, of a token a request.
pub fn clients() -> Vec<Client> {
    let asks = [
        // Ten requests a second.
        ("takes all it gets", (0..10 * 60 * PERIODS).map(|ask| 100 * ask).collect::<Vec<_>>()),
        ("bursts at edges", bursts()),
        ("Poisson, 50 a minute", poisson(50)),
        ("Poisson, 90 a minute", poisson(90)),
    ];
    let of = |(client, asks): &(&'static str, Vec<u64>)| {
        algorithms().map(|(algorithm, mut take)| {
            let mut now = 0;
            let mut granted = |at: u64| take(at - std::mem::replace(&mut now, at));
            let grants = asks.iter().copied().filter(|at| granted(*at)).collect();
            Client { client, algorithm, grants }
        })
    };
    asks.iter().flat_map(of).collect()
}

fn algorithms() -> [(&'static str, Limit); 7] {
    let minute = Window::per_minute(LIMIT);
    let at_most = Quota::at_most(LIMIT, Duration::from_millis(PERIOD)).burst(15);
    [
        ("bucket", bucket(Quota::per_minute(LIMIT).burst(LIMIT))),
        ("at most, burst 15", bucket(at_most)),
        ("fixed utc", window(minute.utc())),
        ("fixed, first use", window(minute)),
        ("weighted", window(minute.weighted())),
        ("sliding", window(minute.sliding())),
        ("a log of stamps", log()),
    ]
}

fn bucket(quota: Quota) -> Limit {
    limit(|clock| TokenBucket::builder(quota).clock(clock).build(), |bucket| bucket.try_acquire().is_ok())
}

fn window(window: Window) -> Limit {
    limit(
        |clock| WindowCounter::builder(window).clock(clock).build(),
        |counter| counter.try_acquire().is_ok(),
    )
}

/// Returns a limit on a mock clock of its own.
fn limit<T: 'static>(make: impl FnOnce(Clock) -> T, take: fn(&T) -> bool) -> Limit {
    let (clock, mock) = Clock::mock();
    let made = make(clock);
    Box::new(move |passed| {
        mock.advance(Duration::from_millis(passed));
        take(&made)
    })
}

/// The stamps of the last minute, for comparison: tollgate has no such limiter.
fn log() -> Limit {
    let (mut stamps, mut now) = (VecDeque::new(), 0);
    Box::new(move |passed| {
        now += passed;
        stamps.retain(|stamp| now - stamp < PERIOD);
        let granted = stamps.len() < LIMIT as usize;
        if granted {
            stamps.push_back(now);
        }
        granted
    })
}

/// Returns 120 requests in the four seconds around every other edge of a minute.
fn bursts() -> Vec<u64> {
    let edges = (1..PERIODS).step_by(2).map(|edge| edge * PERIOD - 2_000);
    edges.flat_map(|from| (0..120).map(move |ask| from + ask * 4_000 / 120)).collect()
}

/// Returns requests that come independently of each other, from a fixed seed.
fn poisson(a_minute: u64) -> Vec<u64> {
    let (mut seed, mut at) = (a_minute, 0.0);
    std::iter::from_fn(move || {
        // The generator of MMIX.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = ((seed >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        at -= part.ln() * PERIOD as f64 / a_minute as f64;
        (at < (PERIODS * PERIOD) as f64).then_some(at as u64)
    })
    .collect()
}

impl Client {
    /// Returns the grants in a minute, on average.
    pub fn a_minute(&self) -> f64 {
        self.grants.len() as f64 / PERIODS as f64
    }

    /// Returns the most grants in any minute.
    pub fn most(&self) -> usize {
        self.grants.iter().map(|at| self.in_minute_to(*at)).max().unwrap_or(0)
    }

    fn in_minute_to(&self, end: u64) -> usize {
        self.grants.iter().filter(|at| **at <= end && end - **at < PERIOD).count()
    }

    /// Returns the grants in the minute before each fourth second of the first six minutes.
    pub fn over_time(&self) -> Vec<(f64, f64)> {
        let seconds = (0..=360).step_by(4);
        seconds.map(|second| (f64::from(second), self.in_minute_to(1_000 * second as u64) as f64)).collect()
    }
}

/// Returns the table of docs/guide.md.
pub fn table(clients: &[Client]) -> String {
    let mut rows = vec![String::from("| |"), String::from("|---|")];
    for (number, of) in clients.iter().enumerate() {
        if clients[..number].iter().all(|other| other.client != of.client) {
            rows[0] += &format!(" {} |", of.client);
            rows[1] += "--:|";
        }
        let row = 2 + number % algorithms().len();
        if row == rows.len() {
            rows.push(format!("| {} |", of.algorithm));
        }
        rows[row] += &format!(" {:.1}, {} |", of.a_minute(), of.most());
    }
    rows.join("\n")
}
