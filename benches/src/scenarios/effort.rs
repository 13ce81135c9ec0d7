//! The thoroughness of a run, and its progress.

use std::time::Duration;

/// The thoroughness of a run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of all contenders in turn, if each thread has a processor.
    pub rounds: usize,
    /// Time of a contender in a round.
    pub window: Duration,
    /// Rounds if threads share processors.
    pub long_rounds: usize,
    /// Time of a contender in such a round: some turns of each thread.
    pub long_window: Duration,
    /// Numbers of keys.
    pub keys: &'static [usize],
    /// Threads on one bucket.
    pub threads: &'static [usize],
    /// Keys that a flood may fill, and whose buckets are swept.
    pub flood: usize,
    /// Tables that are filled until there is no room.
    pub tables: usize,
    /// Processes for each first decision.
    pub processes: usize,
    /// Threads that decisions back to back have at most: 1 on a machine with other work.
    pub most_threads: usize,
    /// Seconds of load on each proxy.
    pub seconds: u32,
}

impl Effort {
    /// A full run.
    pub const FULL: Effort = Effort {
        rounds: 41,
        window: Duration::from_millis(5),
        long_rounds: 11,
        long_window: Duration::from_millis(120),
        keys: &[1, 1_000, 16_000, 128_000, 1_000_000, 10_000_000],
        threads: &[1, 2, 4, 8, 16],
        flood: 1 << 18,
        tables: 9,
        processes: 11,
        most_threads: usize::MAX,
        seconds: 3,
    };

    /// A run of three minutes.
    pub const QUICK: Effort = Effort {
        rounds: 11,
        window: Duration::from_millis(2),
        long_rounds: 3,
        long_window: Duration::from_millis(60),
        keys: &[1, 1_000, 16_000, 1_000_000],
        threads: &[1, 2, 16],
        flood: 1 << 16,
        tables: 2,
        processes: 3,
        most_threads: usize::MAX,
        seconds: 1,
    };
}

/// Writes the progress to stderr.
pub fn say(what: impl std::fmt::Display) {
    eprintln!("{what}");
}
