//! The order in which the upstreams are asked.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::time::Instant;
use tollgate_adaptive::Priority;

use super::health::Probe;
use super::inflight::Entered;
use super::target::Target;

/// Upstreams take turns. One that is down is passed over until it is due, and then one request asks
/// it.
pub(crate) struct Turns {
    next: AtomicUsize,
    start: Instant,
}

/// The upstream that a request asks next.
pub(crate) struct Turn {
    pub(crate) at: usize,
    pub(crate) probe: Option<Probe>,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { next: AtomicUsize::new(0), start: Instant::now() }
    }

    /// Returns milliseconds for [`Health`](super::health::Health). They begin above 0.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Returns the first upstream for a request: the next one that is not passed over, or else the
    /// one that is due first.
    pub(crate) fn first(&self, targets: &[Target]) -> Turn {
        let from = self.next.fetch_add(1, Relaxed) % targets.len();
        if targets[from].health.is_up() {
            return Turn { at: from, probe: None };
        }
        self.good(targets, from, targets.len()).unwrap_or_else(|| {
            let due = (from..from + targets.len()).min_by_key(|at| targets[at % targets.len()].health.due());
            Turn { at: due.unwrap_or(from) % targets.len(), probe: None }
        })
    }

    /// Returns the upstream after one that has failed.
    pub(crate) fn after(&self, targets: &[Target], failed: usize) -> Turn {
        let next = failed + 1;
        let others = targets.len() - 1;
        self.good(targets, next, others).unwrap_or(Turn { at: next % targets.len(), probe: None })
    }

    /// Takes a place at the upstream, or at the next one that has a place and is not passed over.
    /// Returns `None` if there is none. The inner `None` is an upstream without a limit.
    pub(crate) fn enter<'a>(
        &self,
        targets: &'a [Target],
        turn: &mut Turn,
        priority: Priority,
    ) -> Option<Option<Entered<'a>>> {
        for _ in 0..targets.len() {
            let Some(gate) = &targets[turn.at].gate else { return Some(None) };
            let entered = gate.enter(priority);
            if entered.is_some() {
                return Some(entered);
            }
            *turn = self.good(targets, turn.at + 1, targets.len() - 1)?;
        }
        None
    }

    /// Returns the first of some upstreams that is up, or due.
    fn good(&self, targets: &[Target], from: usize, count: usize) -> Option<Turn> {
        let now = self.now();
        (from..from + count).map(|at| at % targets.len()).find_map(|at| {
            let health = &targets[at].health;
            let probe = health.probe(now);
            (probe.is_some() || health.is_up()).then_some(Turn { at, probe })
        })
    }
}
