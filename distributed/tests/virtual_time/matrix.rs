//! The crossed matrix: each failure beside each change of the requests, in each mode, by one
//! process and by four; of buckets, and of each kind of window. Prints a line of figures for each
//! cell:
//!
//! ```text
//! FULL=1 cargo test --test virtual_time matrix -- --nocapture
//! ```
//!
//! Without `FULL` a fifth of the cells of buckets runs, which has each failure beside each change,
//! and a third of those of windows.
//!
//! Each of ten faults makes the cells of windows red, planted by hand on 2026-11-29. In the law: a
//! count ends 300 ms early; the last request passes the limit; a give-back frees twice as many
//! tokens; a sub-window is freed early. In the limiter: a lease ends 100 ms late; tokens outlive
//! their window; an answer is used twice; a granted request gives its tokens back; each process has
//! the whole limit in an outage; the tokens of an outage are not charged. A refund in any window is
//! red in `windows`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate::{Quota, Window};
use tollgate_distributed::DistributedStats;
use tollgate_testing::size;

use crate::cells::cell::{Cell, CellRule, Change, Failure, MOVED, Mode, Rule};
use crate::cells::law::{Figures, HEAD, Interval, nearest, row};
use crate::cells::load::{Record, Run, Times, requests};
use crate::world::World;

const RTT: Duration = Duration::from_millis(4);
const DEADLINE: Duration = Duration::from_millis(50);
/// Of the windows 5 and 24 of 100 tokens are the most that an outage was seen to add.
const TIMES: Times = Times { fails: (2.0, 5.0), end: 9.0, period: 2.0, adds: [0.1, 0.3] };

/// An edge of the month, and so of each period: 2026-01-01 00:00 UTC.
const NEW_YEAR_US: u64 = 1_767_225_600_000_000;
/// The second of that edge. It is within the outages, and no failure begins or ends at an edge.
const EDGE: f64 = 4.7;

/// Lets the store fail. Returns the seconds of each outage, and of each restart without data.
async fn fail(failure: Failure, world: &World) -> Vec<(f64, f64)> {
    let (begun, ended) = TIMES.fails;
    // A restart is over when the answers from before it are there.
    let (settled, moment) = (ended + 2.5, DEADLINE.as_secs_f64());
    let between = async |begin: &dyn Fn(bool)| {
        world.sleep_until(begun).await;
        begin(true);
        world.sleep_until(ended).await;
        begin(false);
    };
    match failure {
        Failure::Calm => Vec::new(),
        Failure::LateAnswers => {
            between(&|on| world.late.store(on, Relaxed)).await;
            Vec::new()
        }
        Failure::LostAnswers => {
            between(&|on| world.loses.store(on, Relaxed)).await;
            Vec::new()
        }
        Failure::StoreDown => {
            world.sleep_until(begun).await;
            world.down.store(true, Relaxed);
            vec![(begun, TIMES.end)]
        }
        Failure::StoreBack => {
            between(&|on| world.hangs.store(on, Relaxed)).await;
            vec![(begun, settled)]
        }
        Failure::RestartedEmpty => {
            world.sleep_until(begun).await;
            world.forget();
            world.sleep_until(ended - 1.0).await;
            world.down.store(true, Relaxed);
            world.sleep_until(ended).await;
            world.forget();
            world.down.store(false, Relaxed);
            vec![(begun, begun + moment), (ended - 1.0, settled), (ended, ended + moment)]
        }
        Failure::OneKeyBroken => {
            between(&|on| world.bad_fails.store(on, Relaxed)).await;
            vec![(begun, settled)]
        }
    }
}

/// The counts of all processes together.
#[derive(Debug, Default)]
struct Met {
    late: u64,
    unknown: u64,
    permanent: u64,
    opened: u64,
    by_share: u64,
}

impl Met {
    fn of(stats: &[DistributedStats]) -> Met {
        let sum = |count: fn(&DistributedStats) -> u64| stats.iter().map(count).sum();
        Met {
            late: sum(|stats| stats.calls_late),
            unknown: sum(|stats| stats.calls_unknown),
            permanent: sum(|stats| stats.calls_permanent),
            opened: sum(|stats| stats.breaker_opened),
            by_share: sum(|stats| stats.by_fallback),
        }
    }

    /// Tells whether the cell had its failure and its change.
    fn is_whole(&self, cell: Cell, record: &Record) -> bool {
        let all = cell.processes as u64;
        let of_bucket = cell.rule == Rule::Bucket;
        let least = |of_buckets: u64, of_windows: u64| if of_bucket { of_buckets } else { of_windows };
        let Met { late, unknown, permanent, opened, by_share } = *self;
        let failed = match cell.failure {
            Failure::Calm => late + unknown + permanent + opened + least(0, by_share) == 0,
            Failure::LateAnswers => late >= least(4 * all, 4) && by_share == 0,
            Failure::LostAnswers => unknown >= least(4 * all, 4) && by_share == 0,
            Failure::StoreDown | Failure::RestartedEmpty => opened >= all && by_share > least(30, 20),
            Failure::StoreBack => opened >= all && late >= least(all, 1) && by_share > least(30, 20),
            Failure::OneKeyBroken => opened == 0 && permanent > least(20, 5) && by_share > least(30, 20),
        };
        let changed = match cell.change {
            Change::OnePlan | Change::NewRule => true,
            Change::TwoPlans => record.by_plan.iter().all(|granted| *granted > least(200, 10)),
            Change::Refunds => record.refunded > least(100, 50),
            Change::DroppedFutures => record.dropped > least(30, 20),
        };
        failed && changed
    }
}

/// Runs a cell. Returns the figures of each key.
async fn run<R: CellRule>(cell: Cell) -> (Vec<Figures>, Met, Record) {
    let world = World::at(NEW_YEAR_US - (EDGE * 1e6) as u64, RTT);
    let stores = std::iter::repeat_with(|| world.network());
    let limiters = cell.limiters::<R, _>(TIMES, "matrix", &world.clock(), stores, DEADLINE);
    let events = requests(cell, TIMES, 0x9E37_79B9_7F4A_7C15);
    let sent = Run::new(cell, TIMES, world.begun(), limiters.clone()).send(&events);
    let (mut record, more) = tokio::join!(sent, fail(cell.failure, &world));
    sleep(DEADLINE).await;
    record.back.extend(world.were_late.lock().unwrap().iter());
    record.windows = world.windows.lock().unwrap().clone();
    record.begun_us = world.unix_us;
    let met = Met::of(&limiters.iter().map(|limiter| limiter.stats()).collect::<Vec<_>>());
    record.opened = cell.failure == Failure::LateAnswers && met.opened > 0;
    let figures = cell.keys().iter().map(|key| Figures::of(cell, *key, TIMES, &more, &record, &events));
    (figures.collect(), met, record)
}

/// Returns the part of the ideal grants that a key has at least, in the seconds without a failure.
fn least(cell: Cell, key: u64) -> f64 {
    match cell.failure {
        _ if cell.rule != Rule::Bucket => least_of_window(cell, key),
        Failure::OneKeyBroken if key != MOVED => 0.75,
        // In the exact mode refunds go to the store, which takes them later.
        Failure::StoreDown | Failure::OneKeyBroken if cell.change == Change::Refunds => 0.55,
        // The tokens of an outage are charged, down to a debt of a burst.
        Failure::StoreBack => 0.6,
        Failure::RestartedEmpty | Failure::OneKeyBroken => 0.75,
        // A request that the shared limit refuses has taken its tokens in front.
        _ if cell.mode == Mode::LocalFirst => 0.75,
        _ => 0.9,
    }
}

/// Returns that part of the key of a window.
fn least_of_window(cell: Cell, key: u64) -> f64 {
    let is_less = matches!(cell.change, Change::TwoPlans | Change::NewRule);
    let is_sliding = cell.rule == Rule::Sliding;
    let is_sound = cell.failure == Failure::Calm || cell.failure == Failure::OneKeyBroken && key != MOVED;
    match (is_sound, is_less) {
        (true, true) => 0.45,
        // Unused tokens of a lease end with each sub-window, of 125 ms.
        (true, false) if is_sliding && cell.mode == Mode::Leased => 0.6,
        (true, false) if is_sliding => 0.8,
        (true, false) => 0.85,
        (false, true) => 0.35,
        (false, false) if is_sliding => 0.4,
        (false, false) => 0.55,
    }
}

/// Runs a cell on a clock of its own. Returns its line of the table, and its faults.
fn line(cell: Cell) -> (String, Vec<String>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (figures, met, record) = match cell.rule {
        Rule::Bucket => runtime.block_on(run::<Quota>(cell)),
        _ => runtime.block_on(run::<Window>(cell)),
    };
    let mut faults = Vec::new();
    for (key, figures) in cell.keys().iter().zip(&figures) {
        if !figures.holds() {
            faults.push(format!("{cell}: key {key} is above its bound: {figures:?}"));
        }
        if figures.useful() < least(cell, *key) {
            faults.push(format!("{cell}: key {key} has {:.2} of the grants: {figures:?}", figures.useful()));
        }
    }
    if !met.is_whole(cell, &record) {
        faults.push(format!("{cell}: it had no failure, or no change: {met:?}"));
    }
    let Interval { granted, bound, from, to } = nearest(&figures, |of| of.window);
    let window = format!("{granted:4} of {bound:6.1} in {from:5.3}..{to:5.3} s");
    let used = figures.iter().map(Figures::useful).fold(f64::INFINITY, f64::min) * 100.0;
    (format!("{cell} | {} | {window} | {used:3.0} %", row(&figures)), faults)
}

/// Runs cells on all processors: each, or one of `step` in a quick run.
fn run_all(cells: &[Cell], step: usize) {
    let cells: Vec<Cell> = cells.iter().copied().step_by(size(step, 1)).collect();
    let (lines, next) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let Some(cell) = cells.get(index) else { return };
                    let ended = line(*cell);
                    lines.lock().unwrap().insert(index, ended);
                }
            });
        }
    });
    let (lines, faults): (Vec<_>, Vec<_>) = lines.into_inner().unwrap().into_values().unzip();
    println!("{HEAD} | in the interval nearest to it  | of the ideal\n{}", lines.join("\n"));
    let faults = faults.concat();
    assert!(
        lines.len() == cells.len() && faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// No cell is above its bound, and none is far below the ideal bucket.
#[test]
fn matrix() {
    let cells = Cell::of_buckets();
    assert_eq!(cells.len(), 210);
    run_all(&cells, 5);
}

/// No window has more than its bound, and none far less than the limit.
#[test]
fn matrix_of_windows() {
    let cells = Cell::of_windows();
    assert_eq!(cells.len(), 336);
    run_all(&cells, 3);
}
