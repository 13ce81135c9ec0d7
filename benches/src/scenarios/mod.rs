//! The scenarios, and how thorough a run is.

mod about;
mod clients;
mod flood;
mod levels;
mod line;
mod newcomers;
mod processes;
mod proxy;
mod room;
mod single;
mod throughput;

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub use about::{about, versions};
pub use clients::{Client, clients, table};
pub use flood::{evicted, flooded, swept};
pub use levels::tokens_over_time;
pub use line::transfers;
pub use newcomers::newcomers;
pub use processes::{memory, print_memory, print_start, starts};
pub use proxy::proxies;
pub use room::rooms;
pub use single::one_by_one;
pub use throughput::{keyed, mixed, one_bucket, strings, windows};

use crate::results::Law;
use crate::{Contender, law};

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
        seconds: 1,
    };
}

/// Measures the grants of each contender, with 1 thread and with 2, and removes the contenders that
/// break the law: they are not timed.
pub fn who_limits<K: Clone + Sync>(kind: &str, contenders: &mut Vec<Contender<K>>, key: &K) -> Vec<Law> {
    judge(kind, contenders, |contender, threads| {
        law::with_patience(contender, key, threads, Duration::from_millis(200))
    })
}

/// Like [`who_limits`], for windows.
pub fn whose_windows_limit(contenders: &mut Vec<Contender<()>>) -> Vec<Law> {
    judge("window", contenders, law::of_windows)
}

fn judge<K>(
    kind: &str,
    contenders: &mut Vec<Contender<K>>,
    law: impl Fn(&Contender<K>, usize) -> Law,
) -> Vec<Law> {
    let mut laws = Vec::new();
    contenders.retain(|contender| {
        say(format_args!("{}: does it limit?", contender.name));
        let measured = [1, 2].map(|threads| Law { kind: kind.to_owned(), ..law(contender, threads) });
        let kept = measured.iter().all(Law::holds);
        laws.extend(measured);
        kept
    });
    laws
}

/// Runs `cargo build` for a package of the project, given the folder of its manifest.
fn build(manifest: &str, args: &str) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest).join("Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]).arg(manifest);
    match command.args(args.split(' ')).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("cargo build {args} failed"))),
    }
}

/// Writes the progress to stderr.
pub(crate) fn say(what: impl std::fmt::Display) {
    eprintln!("{what}");
}
