//! What was measured, as it is kept between a run and its page.

use serde::{Deserialize, Serialize};

/// A whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// What it ran on.
    pub about: About,
    /// Whether each contender limits, in the order of the registry.
    pub laws: Vec<Law>,
    /// Times of decisions, back to back.
    pub times: Vec<Times>,
    /// Times of single decisions.
    pub latencies: Vec<Latencies>,
    /// How threads share a bucket.
    pub shares: Vec<Shares>,
    /// Memory of keys.
    pub memory: Vec<Memory>,
    /// What a table that fills up has no room for.
    pub rooms: Vec<Room>,
    /// Nanoseconds in which a cache line goes from one processor to another, a value for each round.
    pub transfers: Vec<f64>,
    /// The first decision of a process.
    pub starts: Vec<Start>,
    /// A proxy under load.
    pub proxies: Vec<Proxy>,
    /// Tokens of a bucket over time: seconds and tokens.
    pub levels: Vec<(f64, f64)>,
}

/// The machine and the versions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// Its processor's name.
    pub processor: String,
    /// How many of them.
    pub processors: usize,
    /// The operating system's.
    pub kernel: String,
    /// The compiler's version.
    pub rustc: String,
    /// Of the peers, by name.
    pub versions: Vec<(String, String)>,
    /// Day of the run.
    pub date: String,
    /// Shortened to three minutes.
    pub quick: bool,
    /// How long it took, if nothing was left out.
    #[serde(default)]
    pub seconds: u64,
}

/// What a contender granted in some time, with threads at it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Law {
    /// `one bucket` or `keyed`.
    pub kind: String,
    /// Who.
    pub contender: String,
    /// How many threads took all they could.
    pub threads: usize,
    /// What they got.
    pub granted: u64,
    /// The least that a limiter owes, over that time.
    pub least: f64,
    /// The most that one may grant.
    pub most: f64,
}

/// What was asked for, and by how many.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// `one bucket`, `keyed`, ...
    pub what: String,
    /// `granted`, `refused`, `90 % refused`.
    pub path: String,
    /// Threads at it.
    pub threads: usize,
    /// Keys; 1 if it is one bucket.
    pub keys: usize,
}

/// Nanoseconds from one decision to the next of one thread, a value for each round.
///
/// All contenders of a case are timed in turn in each round: values of one round belong together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Of what.
    pub case: Case,
    /// Who.
    pub contender: String,
    /// As measured.
    pub raw: Vec<f64>,
    /// What the loop takes by itself, in the same rounds: of `raw`.
    pub loops: Vec<f64>,
    /// What else there is to say, such as the keys held afterwards: names and values.
    #[serde(default)]
    pub notes: Vec<(String, String)>,
}

impl Times {
    /// Returns the rounds without the loop's own time.
    #[must_use]
    pub fn net(&self) -> Vec<f64> {
        self.raw.iter().zip(&self.loops).map(|(raw, of_loop)| raw - of_loop).collect()
    }
}

/// Of single decisions, each with two readings of a clock in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// Of what.
    pub case: Case,
    /// Who.
    pub contender: String,
    /// Parts of all decisions, 0 to 1, and the nanoseconds in which so many were made. From 0 to 1, finer towards 1; of
    /// all rounds together.
    pub quantiles: Vec<(f64, f64)>,
    /// p99.9 of each round: rounds belong together as those of [`Times`] do.
    pub p999: Vec<f64>,
    /// Decisions in all.
    pub decisions: u64,
    /// What else there is to say, such as the keys held afterwards: names and values.
    pub notes: Vec<(String, String)>,
}

/// Decisions of each thread in the same time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shares {
    /// Of what.
    pub case: Case,
    /// Who.
    pub contender: String,
    /// Jain's index of each round: 1 if all threads made as many decisions, 1/n if one of n made all.
    pub jain: Vec<f64>,
    /// The least part of a fair share that any thread got, in each round.
    pub least: Vec<f64>,
}

/// Memory of a limiter, in a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Who.
    pub contender: String,
    /// What kind of keys.
    pub kind: String,
    /// How many.
    pub keys: usize,
    /// Bytes asked of the allocator and not given back.
    pub counted: u64,
    /// By how much the process grew.
    pub resident: u64,
    /// Allocations of a million decisions on keys that are held.
    pub allocations: u64,
    /// Keys that it says it holds. 0 if it cannot tell.
    #[serde(default)]
    pub held: usize,
}

/// What newcomers find in fixed tables that fill up with keys of which none is idle, all tables together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Room {
    /// The part of its slots that each table holds keys in at last, 0 to 1.
    pub load: f64,
    /// Slots of a table.
    pub slots: usize,
    /// How many tables.
    pub tables: usize,
    /// Keys that were never seen, from the first on.
    pub inserts: u64,
    /// How many of them were refused for want of room.
    pub refused: u64,
    /// Of those, what came while the last hundredth of the slots was taken.
    pub last_inserts: u64,
    /// As above.
    pub last_refused: u64,
}

/// Of a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Who.
    pub contender: String,
    /// Nanoseconds to make it, each process one.
    pub made: Vec<f64>,
    /// Nanoseconds of the first decision.
    pub first: Vec<f64>,
    /// Nanoseconds of the second.
    pub second: Vec<f64>,
}

/// A proxy under load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proxy {
    /// With which limiter, or none.
    pub limiter: String,
    /// Requests a second, each round one.
    pub requests: Vec<f64>,
    /// Microseconds of a request: p50 and p99 of each round.
    pub p50: Vec<f64>,
    /// As above.
    pub p99: Vec<f64>,
}
