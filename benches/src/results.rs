//! The results of a run.

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Grants of each contender against the law, in the order of the registry.
    pub laws: Vec<Law>,
    /// Times of decisions, back to back.
    pub times: Vec<Times>,
    /// Times of single decisions.
    pub latencies: Vec<Latencies>,
    /// Shares of the threads in a bucket.
    pub shares: Vec<Shares>,
    /// Memory of keys.
    pub memory: Vec<Memory>,
    /// Refusals of a table that fills up.
    pub rooms: Vec<Room>,
    /// Nanoseconds of a cache line from one processor to another, a value for each round.
    pub transfers: Vec<f64>,
    /// The first decision of a process.
    pub starts: Vec<ColdStart>,
    /// A proxy under load.
    pub proxies: Vec<Proxy>,
}

/// The machine and the versions.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the processor.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Name and version of the operating system.
    pub kernel: String,
    /// Number of pauses of a thread in a second, and their median.
    pub pauses: String,
    /// The compiler's version.
    pub rustc: String,
    /// The commit of the code, with `-dirty` if there are changes.
    pub commit: String,
    /// Versions of the contenders and of their dependencies, by name.
    pub versions: Vec<(String, String)>,
    /// Day of the run.
    pub date: String,
}

/// Tokens that a contender granted in some time.
#[derive(Clone, Debug)]
pub struct Law {
    /// `one bucket` or `keyed`.
    pub kind: String,
    /// Name of the contender.
    pub contender: String,
    /// Threads that took all tokens they could.
    pub threads: usize,
    /// Tokens that the threads got.
    pub granted: u64,
    /// The tokens that a limiter owes at least over that time.
    pub least: f64,
    /// The tokens that a limiter may grant at most.
    pub most: f64,
}

/// A scenario in one of its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// Name of the scenario: `one bucket`, `keyed, uniform`.
    pub what: String,
    /// Outcome of the decisions: `granted`, `refused`, `90 % refused`.
    pub path: String,
    /// Number of threads.
    pub threads: usize,
    /// Number of keys, 1 for one bucket.
    pub keys: usize,
}

/// Nanoseconds from one decision to the next of one thread, a value for each round.
///
/// All contenders of a case are timed in turn in each round: values of one round belong together.
#[derive(Clone, Debug)]
pub struct Times {
    /// The case.
    pub case: Case,
    /// Name of the contender.
    pub contender: String,
    /// Nanoseconds with those of the loop.
    pub raw: Vec<f64>,
    /// Nanoseconds of the empty loop in the same rounds.
    pub loops: Vec<f64>,
    /// Names and values of other numbers, such as the keys held afterwards.
    pub notes: Vec<(String, String)>,
}

impl Times {
    /// Returns the rounds without the loop's own time.
    pub fn net(&self) -> Vec<f64> {
        self.raw.iter().zip(&self.loops).map(|(raw, of_loop)| raw - of_loop).collect()
    }
}

/// Times of single decisions, each with two readings of a clock in it.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// The case.
    pub case: Case,
    /// Name of the contender.
    pub contender: String,
    /// Parts of the decisions of all rounds, 0 to 1 and finer towards 1, and the nanoseconds within
    /// which that part was made.
    pub quantiles: Vec<(f64, f64)>,
    /// Nanoseconds at p99.9 of each round. Rounds belong together as those of [`Times`].
    pub p999: Vec<f64>,
    /// Number of decisions.
    pub decisions: u64,
    /// Names and values of other numbers, such as the keys held afterwards.
    pub notes: Vec<(String, String)>,
}

/// Shares of the threads in the decisions of the same time.
#[derive(Clone, Debug)]
pub struct Shares {
    /// The case.
    pub case: Case,
    /// Name of the contender.
    pub contender: String,
    /// Jain's index of each round: 1 if all threads made as many decisions, 1/n if one of n made
    /// all.
    pub jain: Vec<f64>,
    /// The least part of a fair share that a thread got, in each round.
    pub least: Vec<f64>,
}

/// Memory of a limiter, in a process of its own.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Name of the contender.
    pub contender: String,
    /// Type of the keys: `u64` or `string`.
    pub kind: String,
    /// Number of keys.
    pub keys: usize,
    /// Bytes asked of the allocator and not given back. A large table is mapped, and not counted.
    pub counted: u64,
    /// Bytes by which the process grew.
    pub resident: u64,
    /// Allocations of a million decisions on known keys.
    pub allocations: u64,
    /// Keys that the limiter holds, 0 if it cannot tell.
    pub held: usize,
}

/// Refusals of new keys in fixed tables that fill up with keys of which none is idle, summed over
/// the tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Part of the slots of a table that hold keys in the end, 0 to 1.
    pub load: f64,
    /// Number of slots of a table.
    pub slots: usize,
    /// Number of tables.
    pub tables: usize,
    /// New keys, from the first on.
    pub inserts: u64,
    /// New keys that were refused for want of room.
    pub refused: u64,
    /// New keys while the last hundredth of the slots was taken.
    pub last_inserts: u64,
    /// Refused keys while the last hundredth of the slots was taken.
    pub last_refused: u64,
}

/// The first decisions of a limiter, in processes of its own.
#[derive(Clone, Debug, Default)]
pub struct ColdStart {
    /// Name of the contender.
    pub contender: String,
    /// Nanoseconds to make the limiter, a value for each process.
    pub made: Vec<f64>,
    /// Nanoseconds of the first decision.
    pub first: Vec<f64>,
    /// Nanoseconds of the second decision.
    pub second: Vec<f64>,
}

/// A proxy under load.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    /// Name of the limiter, or `none`.
    pub limiter: String,
    /// Requests a second, a value for each round.
    pub requests: Vec<f64>,
    /// Microseconds of a request at p50, a value for each round.
    pub p50: Vec<f64>,
    /// Microseconds of a request at p99, a value for each round.
    pub p99: Vec<f64>,
}
