//! The lines of callers that wait for tokens of keys.
//!
//! A line has the identity of a receipt: the entry, the removals in its shard, and the plan. So no
//! code of a key runs under the mutex of a line, and a line never serves another key that uses the
//! entry again. After a removal the callers that are not due join the line of the next entry, in
//! their order.
//!
//! Lock order: the guard of the store, then a line. No hook and no waker runs under the mutex.

use std::collections::HashMap;
use std::sync::PoisonError;

use crate::bucket::engine::Done;
use crate::bucket::line::caller_line::CallerLine;
use crate::bucket::receipt::Receipt;
use crate::fault::{Fault, injected};
use crate::keyed::key::mix;
use crate::sync::{MODEL, Mutex, MutexGuard, OnceLock};
use crate::word::decision::Denied;
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;

/// Number of shards, a power of two.
const SHARDS: usize = if MODEL { 2 } else { 64 };

/// The identity of a line.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct LineId {
    pub(crate) origin: Origin,
    /// The removals of the key's shard from before the line, or the keys that had entered, as in a
    /// receipt.
    pub(crate) removals: u64,
    pub(crate) plan: Option<PlanTerms>,
}

impl LineId {
    /// The line of a bucket that is in no store.
    pub(crate) const OWN: LineId = LineId { origin: Origin::Own, removals: 0, plan: None };

    /// Returns the line of the bucket that an outcome is of.
    pub(crate) fn of(done: Result<Done, Denied>, removals: u64, plan: Option<&PlanTerms>) -> LineId {
        let origin = done.map_or(Origin::Nowhere, |done| done.outcome.origin);
        LineId { origin, removals, plan: plan.copied() }
    }

    /// Returns a receipt that finds the bucket.
    pub(super) fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::of_origin(self.origin, self.plan);
        receipt.removals = self.removals;
        receipt
    }
}

impl PartialEq for LineId {
    fn eq(&self, other: &LineId) -> bool {
        let LineId { origin, removals, plan } = *other;
        let same = self.removals == removals || injected(Fault::LineOfAnotherKey);
        self.origin == origin && self.plan == plan && same
    }
}

/// The lines of some buckets.
///
/// Found by the origin: the lines of a bucket differ in the removals before them, and in the plan.
#[derive(Default)]
pub(crate) struct ShardOfLines {
    lines: HashMap<Origin, Vec<(LineId, CallerLine)>>,
    /// Keys of this shard that entered the store while a caller could wait for an overflow bucket.
    pub(super) entered: u64,
}

impl ShardOfLines {
    /// Returns a line, if there is one.
    pub(super) fn get(&mut self, id: &LineId) -> Option<&mut CallerLine> {
        let lines = self.lines.get_mut(&id.origin)?;
        lines.iter_mut().find(|(other, _)| other == id).map(|(_, line)| line)
    }

    /// Returns a line, new if there is none.
    pub(super) fn get_or_new(&mut self, id: LineId) -> &mut CallerLine {
        let lines = self.lines.entry(id.origin).or_default();
        let index = lines.iter().position(|(other, _)| *other == id).unwrap_or_else(|| {
            lines.push((id, CallerLine::default()));
            lines.len() - 1
        });
        &mut lines[index].1
    }

    /// Calls `touch` with each line of an origin, and drops those that are over.
    pub(super) fn touch(&mut self, origin: Origin, mut touch: impl FnMut(&LineId, &mut CallerLine)) {
        let Some(lines) = self.lines.get_mut(&origin) else { return };
        lines.retain_mut(|(id, line)| {
            touch(id, line);
            !line.is_over()
        });
        if lines.is_empty() {
            self.lines.remove(&origin);
        }
    }

    /// Drops the lines of an origin that are over.
    pub(super) fn drop_over(&mut self, origin: Origin) {
        self.touch(origin, |_, _| {});
    }

    pub(super) fn origins(&self) -> Vec<Origin> {
        self.lines.keys().copied().collect()
    }
}

type Shard = Mutex<ShardOfLines>;

/// The lines of a limiter's keys, made by the first wait or reservation, or by the first receipt
/// of an overflow bucket.
pub(crate) struct Lines(pub(super) OnceLock<Box<[Shard]>>);

impl Lines {
    pub(crate) fn new() -> Lines {
        Lines(OnceLock::new())
    }

    /// Returns whether the lines are made.
    #[inline]
    pub(crate) fn are_made(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn shards(&self) -> &[Shard] {
        self.0.get_or_init(|| (0..SHARDS).map(|_| Shard::default()).collect())
    }

    /// Returns the shard of a line.
    pub(super) fn of(&self, origin: Origin) -> MutexGuard<'_, ShardOfLines> {
        let hash = match origin {
            Origin::Entry(id) | Origin::Inline(id) | Origin::Overflow(id) => id,
            Origin::Own | Origin::NoKey | Origin::Nowhere => 0,
        };
        lock(&self.shards()[(mix(hash) >> (u64::BITS - SHARDS.ilog2())) as usize])
    }
}

pub(super) fn lock(shard: &Shard) -> MutexGuard<'_, ShardOfLines> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
