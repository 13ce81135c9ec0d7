//! The cells: a failure, a change of the requests, a mode, and a number of processes.

use std::fmt;
use std::time::Duration;

use tollgate::{Clock, Quota};
use tollgate_distributed::{DistributedLimiter, OnOutage, Store};

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
    TwoPlans,
    NewQuota,
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
    pub(crate) failure: Failure,
    pub(crate) change: Change,
    pub(crate) mode: Mode,
    pub(crate) processes: usize,
}

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
    [Change::OnePlan, Change::TwoPlans, Change::NewQuota, Change::Refunds, Change::DroppedFutures];
pub(crate) const MODES: [Mode; 3] = [Mode::Exact, Mode::Leased, Mode::LocalFirst];

/// The quota of all keys, the other one of a plan or of a change, and that of the local limit.
pub(crate) const QUOTA: Quota = Quota::per_second(100);
pub(crate) const OTHER: Quota = Quota::per_second(80).burst(120);
pub(crate) const LOCAL: Quota = Quota::per_second(60).burst(40);
pub(crate) const TAU: Duration = Duration::from_millis(100);

/// A key that all processes ask for all the time, one for which all ask at once now and then, and
/// one that one process drains, and all ask for later.
pub(crate) const STEADY: u64 = 1;
pub(crate) const BURSTY: u64 = 2;
pub(crate) const MOVED: u64 = 7;
pub(crate) const KEYS: [u64; 3] = [STEADY, BURSTY, MOVED];

impl Cell {
    /// Returns all cells.
    pub(crate) fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for failure in FAILURES {
            for change in CHANGES {
                for mode in MODES {
                    cells.extend([1, 4].map(|processes| Cell { failure, change, mode, processes }));
                }
            }
        }
        cells
    }

    /// Returns the processes of the cell on their ways to the store.
    pub(crate) fn limiters<S: Store>(
        self,
        name: &str,
        clock: &Clock,
        stores: impl IntoIterator<Item = S>,
        deadline: Duration,
    ) -> Vec<DistributedLimiter<u64, S>> {
        let limiter = |store| {
            let builder = DistributedLimiter::builder(QUOTA, store).name(name).clock(clock.clone());
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
            Change::TwoPlans | Change::NewQuota => (burst.max(OTHER.capacity() as f64), rate),
            _ => (burst, rate),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { failure, change, mode, processes } = self;
        let words = [format!("{failure:?}"), format!("{change:?}"), format!("{mode:?}")];
        write!(f, "{:<14} {:<14} {:<10} {processes}", words[0], words[1], words[2])
    }
}
