//! The cells: a rule, a failure, a change of the requests, a mode, and a number of processes.

use std::fmt;
use std::time::Duration;

use tollgate::{Clock, Quota, Window};
use tollgate_distributed::{DistributedLimiter, OnOutage, SharedRule, Store};

use super::load::Times;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Bucket,
    FirstUse,
    Utc,
    Month,
    Sliding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Calm,
    /// Answers come after the deadline.
    LateAnswers,
    /// Calls have their effect, and their answers never come.
    LostAnswers,
    /// The store does not answer to the end.
    StoreDown,
    /// The store does not answer for some time.
    StoreBack,
    RestartedEmpty,
    /// The calls for [`MOVED`] fail.
    OneKeyBroken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    OnePlan,
    /// Each second request is under the plan of the other rule.
    TwoPlans,
    /// One process after the other has the other rule, and its own again.
    NewRule,
    Refunds,
    DroppedFutures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    Leased,
    LocalFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) rule: Rule,
    pub(crate) failure: Failure,
    pub(crate) change: Change,
    pub(crate) mode: Mode,
    pub(crate) processes: usize,
}

pub(crate) const WINDOWS: [Rule; 4] = [Rule::FirstUse, Rule::Utc, Rule::Month, Rule::Sliding];
pub(crate) const FAILURES: [Failure; 7] = [
    Failure::Calm,
    Failure::LateAnswers,
    Failure::LostAnswers,
    Failure::StoreDown,
    Failure::StoreBack,
    Failure::RestartedEmpty,
    Failure::OneKeyBroken,
];
pub(crate) const CHANGES: [Change; 5] =
    [Change::OnePlan, Change::TwoPlans, Change::NewRule, Change::Refunds, Change::DroppedFutures];
pub(crate) const MODES: [Mode; 3] = [Mode::Exact, Mode::Leased, Mode::LocalFirst];

/// The quota of all keys, the other one of a plan or of a change, and that of the local limit.
pub(crate) const QUOTA: Quota = Quota::per_second(100);
pub(crate) const OTHER: Quota = Quota::per_second(80).burst(120);
pub(crate) const LOCAL: Quota = Quota::per_second(60).burst(40);
pub(crate) const TAU: Duration = Duration::from_millis(100);

/// A key that all processes ask for all the time, one for which all ask at once now and then, and
/// one that may be at fault: of a bucket one process drains it, and all ask for it later.
pub(crate) const STEADY: u64 = 1;
pub(crate) const BURSTY: u64 = 2;
pub(crate) const MOVED: u64 = 7;

/// The rules of a cell.
pub(crate) trait CellRule: SharedRule {
    /// Returns the rule of all keys, and the other one of a plan or of a change.
    fn of(cell: Cell, times: Times) -> [Self; 2];
}

impl CellRule for Quota {
    fn of(_: Cell, _: Times) -> [Quota; 2] {
        [QUOTA, OTHER]
    }
}

impl CellRule for Window {
    fn of(cell: Cell, times: Times) -> [Window; 2] {
        let limit = cell.limit(times);
        let window = Window::per(limit, Duration::from_secs_f64(times.period));
        let window = match cell.rule {
            Rule::Utc => window.utc(),
            Rule::Month => Window::per_month(limit),
            Rule::Sliding => window.sliding(),
            Rule::FirstUse | Rule::Bucket => window,
        };
        [window, window.with_limit(limit / 2).unwrap()]
    }
}

impl Cell {
    /// Returns all cells of buckets.
    pub(crate) fn of_buckets() -> Vec<Cell> {
        let mut cells = Vec::new();
        for (failure, change) in each_failure() {
            for mode in MODES {
                let cell = |processes| Cell { rule: Rule::Bucket, failure, change, mode, processes };
                cells.extend([1, 4].map(cell));
            }
        }
        cells
    }

    /// Returns all cells of windows.
    pub(crate) fn of_windows() -> Vec<Cell> {
        let mut cells = Vec::new();
        for rule in WINDOWS {
            for (failure, change) in each_failure() {
                for processes in [4, 1] {
                    // One process has each failure, and the changes beside others.
                    if processes > 1 || change == Change::OnePlan {
                        let cell = |mode| Cell { rule, failure, change, mode, processes };
                        cells.extend([Mode::Exact, Mode::Leased].map(cell));
                    }
                }
            }
        }
        cells
    }

    /// Returns the keys that the processes ask for.
    pub(crate) fn keys(self) -> &'static [u64] {
        if self.rule == Rule::Bucket { &[STEADY, BURSTY, MOVED] } else { &[STEADY, MOVED] }
    }

    /// Returns the limit of a window: about half of the demand, or most of a month's.
    pub(crate) fn limit(self, times: Times) -> u64 {
        if self.rule == Rule::Month { 400 } else { (50.0 * times.period) as u64 }
    }

    /// Returns the processes of the cell on their ways to the store.
    pub(crate) fn limiters<R: CellRule, S: Store>(
        self,
        times: Times,
        name: &str,
        clock: &Clock,
        stores: impl IntoIterator<Item = S>,
        deadline: Duration,
    ) -> Vec<DistributedLimiter<u64, S, R>> {
        let limiter = |store| {
            let [rule, _] = R::of(self, times);
            let builder = DistributedLimiter::builder(rule, store).name(name).clock(clock.clone());
            let builder = builder.deadline(deadline).on_outage(self.policy());
            let builder = match self.mode {
                Mode::Exact => builder.exact(),
                Mode::Leased => builder.leased(TAU),
                Mode::LocalFirst => builder.leased(TAU).local_first(LOCAL),
            };
            builder.build().unwrap()
        };
        stores.into_iter().take(self.processes).map(limiter).collect()
    }

    /// Returns the policy of an outage. Where answers are late or lost a refusal shows each token
    /// that is granted twice; else the processes have the quota together.
    pub(crate) fn policy(self) -> OnOutage {
        match self.failure {
            Failure::LateAnswers | Failure::LostAnswers => OnOutage::Deny,
            _ => OnOutage::Local { share: 1.0 / self.processes as f64 },
        }
    }

    /// Returns the most tokens of a burst, and of a second.
    pub(crate) fn quota(self) -> (f64, f64) {
        let (burst, rate) = (QUOTA.capacity() as f64, QUOTA.tokens() as f64);
        match self.change {
            Change::TwoPlans | Change::NewRule => (burst.max(OTHER.capacity() as f64), rate),
            _ => (burst, rate),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { rule, failure, change, mode, processes } = self;
        let rule = format!("{rule:?}");
        let words = [format!("{failure:?}"), format!("{change:?}"), format!("{mode:?}")];
        write!(f, "{rule:<8} {:<14} {:<14} {:<10} {processes}", words[0], words[1], words[2])
    }
}

/// Returns each failure beside each change.
fn each_failure() -> impl Iterator<Item = (Failure, Change)> {
    FAILURES.into_iter().flat_map(|failure| CHANGES.map(|change| (failure, change)))
}
