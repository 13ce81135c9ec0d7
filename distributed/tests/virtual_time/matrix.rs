//! The crossed matrix: each failure beside each change of the requests, in each mode, by one
//! process and by four. Prints a line of figures for each cell:
//!
//! ```text
//! cargo test --test virtual_time matrix -- --nocapture
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate_distributed::DistributedStats;

use crate::cells::cell::{Cell, Change, Failure, KEYS, MOVED, Mode};
use crate::cells::law::{Figures, HEAD, Window, nearest, row};
use crate::cells::load::{Record, Run, Times, requests};
use crate::world::World;

pub(crate) const RTT: Duration = Duration::from_millis(4);
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
pub(crate) const TIMES: Times = Times { fails: (2.0, 5.0), end: 9.0 };

/// Lets the store fail. Returns the seconds of each outage, and of each restart without data.
pub(crate) async fn fail(failure: Failure, world: &World) -> Vec<(f64, f64)> {
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
        let failed = match cell.failure {
            Failure::Calm => self.late + self.unknown + self.permanent + self.opened == 0,
            Failure::LateAnswers => self.late >= 4 * all && self.by_share == 0,
            Failure::LostAnswers => self.unknown >= 4 * all && self.by_share == 0,
            Failure::StoreDown | Failure::RestartedEmpty => self.opened >= all && self.by_share > 30,
            Failure::StoreBack => self.opened >= all && self.late >= all && self.by_share > 30,
            Failure::OneKeyBroken => self.opened == 0 && self.permanent > 20 && self.by_share > 30,
        };
        let changed = match cell.change {
            Change::OnePlan | Change::NewQuota => true,
            Change::TwoPlans => record.by_plan.iter().all(|granted| *granted > 200),
            Change::Refunds => record.refunded > 100,
            Change::DroppedFutures => record.dropped > 30,
        };
        failed && changed
    }
}

/// Runs a cell. Returns the figures of each key.
async fn run(cell: Cell) -> (Vec<Figures>, Met, Record) {
    let world = World::new(RTT);
    let stores = std::iter::repeat_with(|| world.network());
    let limiters = cell.limiters("matrix", &world.clock(), stores, DEADLINE);
    let events = requests(cell, TIMES, 0x9E37_79B9_7F4A_7C15);
    let sent = Run::new(cell, world.begun(), limiters.clone()).send(&events);
    let (mut record, more) = tokio::join!(sent, fail(cell.failure, &world));
    sleep(DEADLINE).await;
    record.back.extend(world.were_late.lock().unwrap().iter());
    let met = Met::of(&limiters.iter().map(|limiter| limiter.stats()).collect::<Vec<_>>());
    record.opened = cell.failure == Failure::LateAnswers && met.opened > 0;
    let figures = KEYS.map(|key| Figures::of(cell, key, TIMES, &more, &record, &events));
    (figures.to_vec(), met, record)
}

/// Returns the part of the ideal grants that a key has at least, in the seconds without a failure.
fn least(cell: Cell, key: u64) -> f64 {
    match cell.failure {
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

/// Runs a cell on a clock of its own. Returns its line of the table, and its faults.
fn line(cell: Cell) -> (String, Vec<String>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (figures, met, record) = runtime.block_on(run(cell));
    let mut faults = Vec::new();
    for (key, figures) in KEYS.iter().zip(&figures) {
        let local = figures.local.into_iter().flatten();
        if !local.chain([figures.whole, figures.window]).all(|window| window.holds()) {
            faults.push(format!("{cell}: key {key} is above its bound: {figures:?}"));
        }
        if figures.useful() < least(cell, *key) {
            faults.push(format!("{cell}: key {key} has {:.2} of the grants: {figures:?}", figures.useful()));
        }
    }
    if !met.is_whole(cell, &record) {
        faults.push(format!("{cell}: it had no failure, or no change: {met:?}"));
    }
    let window = nearest(&figures, |of| of.window);
    let Window { granted, bound, from, to } = window;
    let window = format!("{granted:4} of {bound:6.1} in {from:5.3}..{to:5.3} s");
    let used = figures.iter().map(Figures::useful).fold(f64::INFINITY, f64::min) * 100.0;
    (format!("{cell} | {} | {window} | {used:3.0} %", row(&figures)), faults)
}

/// No cell is above its bound, and none is far below the ideal bucket.
#[test]
fn matrix() {
    let (cells, next) = (Cell::all(), AtomicUsize::new(0));
    let lines: Mutex<BTreeMap<usize, _>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Relaxed)) {
                    let index = cells.iter().position(|other| other == cell).unwrap();
                    let ended = line(*cell);
                    lines.lock().unwrap().insert(index, ended);
                }
            });
        }
    });
    let (lines, faults): (Vec<_>, Vec<_>) = lines.into_inner().unwrap().into_values().unzip();
    println!("{HEAD} | in the window nearest to it    | of the ideal\n{}", lines.join("\n"));
    let faults = faults.concat();
    assert!(lines.len() == 210 && faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
