//! How many times faster than the mutex design, as a Markdown table.
//!
//! Both are timed in one run and in turn, so that what else the machine does falls on both.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState as FoldHash;
use tollgate::{RateLimiter, TokenBucket};
use tollgate_benches::contenders::{MutexBucket, Pinned, RwLockMap};
use tollgate_benches::timing::{self, Timer};
use tollgate_benches::{KeyedLimiter, Path};

const ROUNDS: usize = 41;

/// Fewer are no basis for a median.
const LEAST_ROUNDS: usize = 15;

/// No round begins later: on a busy machine 2 processors at once are long to wait for.
const LIMIT: Duration = Duration::from_secs(40);

/// Decisions of each thread in a round: 1 to 20 ms, so that most rounds are over before the scheduler cuts in.
const DECISIONS: u64 = 50_000;

const THREADS: [usize; 2] = [1, 2];

fn main() {
    let begun = Instant::now();
    let cases = cases();
    let mut rounds: Vec<Vec<(f64, f64)>> = Vec::new();
    while rounds.len() < ROUNDS && begun.elapsed() < LIMIT {
        rounds.push(cases.iter().map(|case| (nanos(&case.ours), nanos(&case.theirs))).collect());
    }

    let done = rounds.len();
    assert!(done >= LEAST_ROUNDS, "too busy a machine: {done} rounds in {LIMIT:?}");

    println!("Nanoseconds from decision to decision of one thread, the others at it too:");
    println!("median and quartiles of {done} rounds of {DECISIONS} decisions a thread.");
    println!("The ratio is taken in each round.\n");
    println!("| case | tollgate, ns | mutex, ns | mutex / tollgate |");
    println!("|---|--:|--:|--:|");
    for (i, case) in cases.iter().enumerate() {
        let column = |value: fn((f64, f64)) -> f64| rounds.iter().map(move |round| value(round[i]));
        let ours = spread(column(|(ours, _)| ours), 1);
        let theirs = spread(column(|(_, theirs)| theirs), 1);
        let ratio = spread(column(|(ours, theirs)| theirs / ours), 2);
        println!("| {} | {ours} | {theirs} | {ratio} |", case.name);
    }
}

/// A row of the table.
struct Case {
    name: String,
    ours: Timer,
    theirs: Timer,
}

impl Case {
    fn new(what: &str, threads: usize, ours: Timer, theirs: Timer) -> Case {
        let plural = if threads == 1 { "" } else { "s" };
        Case { name: format!("{what}, {threads} thread{plural}"), ours, theirs }
    }
}

fn cases() -> Vec<Case> {
    [
        clocks(),
        on_each_path("one bucket", timing::one_bucket::<TokenBucket>, timing::one_bucket::<MutexBucket>),
        keyed::<RateLimiter<u64>, RandomState>("keyed, SipHash"),
        keyed::<RateLimiter<u64, FoldHash>, FoldHash>("keyed, foldhash"),
        keyed::<Pinned<FoldHash>, FoldHash>("keyed, foldhash, pinned"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How much of the other rows is a reading of the clock, and whether the machine lets 2 threads run at once.
fn clocks() -> Vec<Case> {
    let case = |threads| {
        let quanta = quanta::Clock::new();
        Case::new(
            "clock alone",
            threads,
            timing::clock(threads, move || quanta.now()),
            timing::clock(threads, Instant::now),
        )
    };
    THREADS.map(case).into()
}

fn keyed<L, S>(name: &str) -> Vec<Case>
where
    L: KeyedLimiter + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    on_each_path(name, timing::keyed::<L>, timing::keyed::<RwLockMap<S>>)
}

fn on_each_path(name: &str, ours: fn(Path, usize) -> Timer, theirs: fn(Path, usize) -> Timer) -> Vec<Case> {
    let case = |path: Path, threads| {
        Case::new(&format!("{name}, {}", path.name()), threads, ours(path, threads), theirs(path, threads))
    };
    Path::ALL.into_iter().flat_map(|path| THREADS.map(|threads| case(path, threads))).collect()
}

fn nanos(timer: &Timer) -> f64 {
    timer(DECISIONS).as_secs_f64() * 1e9 / DECISIONS as f64
}

/// The median, and the quartiles.
fn spread(values: impl Iterator<Item = f64>, decimals: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let [lower, median, upper] = [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4]);
    format!("{median:.decimals$} ({lower:.decimals$} to {upper:.decimals$})")
}
