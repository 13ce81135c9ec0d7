//! The callers of a line in order, by slots.
//!
//! A caller that has left leaves its slot, of 0 units. Slots are numbered anew when those
//! that were left outnumber the callers.

use std::task::Waker;

use super::runs::{AT_ONCE, Runs};
use super::sums::visit;

/// A position that no timer is set for.
pub(super) const UNSET: i64 = i64::MAX;

/// A caller in line.
#[derive(Debug)]
pub(super) struct Node {
    /// Its number, above those of all callers before it.
    pub(super) id: u64,
    is_gone: bool,
    /// Position for which the caller has set its timer.
    pub(super) armed: i64,
    pub(super) waker: Option<Waker>,
}

/// The callers of a line, and the runs with their positions.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    nodes: Vec<Node>,
    waiting: usize,
    pub(crate) runs: Runs,
}

impl Queue {
    /// Returns the number of callers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn find(&self, id: u64) -> Option<usize> {
        let slot = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        (!self.nodes[slot].is_gone).then_some(slot)
    }

    pub(super) fn node(&mut self, slot: usize) -> &mut Node {
        &mut self.nodes[slot]
    }

    /// Returns the callers that wait, in order.
    pub(super) fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut().filter(|node| !node.is_gone)
    }

    /// Adds a caller at the end, without a position.
    pub(crate) fn push(&mut self, id: u64, units: u64) {
        // On the average each caller is numbered anew once.
        if self.nodes.len() > 2 * self.waiting + self.runs.count() + AT_ONCE {
            self.number_anew();
        }
        self.nodes.push(Node { id, is_gone: false, armed: UNSET, waker: None });
        self.runs.push(units);
        self.waiting += 1;
    }

    fn number_anew(&mut self) {
        let mut live = 0;
        let next = self.nodes.iter().map(|node| {
            visit();
            live += usize::from(!node.is_gone);
            live
        });
        let slots: Vec<usize> = [0].into_iter().chain(next).collect();
        self.nodes.retain(|node| !node.is_gone);
        self.runs.number_anew(&slots);
    }

    /// Removes the head, if it has a position that is due at `now`, or its number is at most `due`.
    pub(crate) fn pop_due(&mut self, now: i64, due: Option<u64>) -> Option<(u64, Option<Waker>)> {
        let slot = self.runs.head().filter(|slot| self.runs.is_placed(*slot))?;
        let (_, end) = self.runs.stretch_of(slot);
        if end > now && due.is_none_or(|due| self.nodes[slot].id > due) {
            return None;
        }
        self.runs.serve(slot);
        Some(self.vacate(slot))
    }

    /// Removes the first caller without a position.
    pub(crate) fn pop_of_tail(&mut self) -> Option<(u64, Option<Waker>)> {
        let slot = self.runs.head_of_tail()?;
        let waker = self.take_out(slot);
        Some((self.nodes[slot].id, waker))
    }

    /// Takes a caller out of the line, and returns its waker. Those behind it in its run move up.
    pub(crate) fn take_out(&mut self, slot: usize) -> Option<Waker> {
        self.runs.take_out(slot);
        self.vacate(slot).1
    }

    /// Leaves a slot without a caller, and returns the number and the waker that it had.
    fn vacate(&mut self, slot: usize) -> (u64, Option<Waker>) {
        let node = &mut self.nodes[slot];
        node.is_gone = true;
        self.waiting -= 1;
        (node.id, node.waker.take())
    }

    /// Moves all positions back by `by`.
    pub(crate) fn shift(&mut self, by: i64) {
        self.runs.shift(by);
        for node in self.nodes.iter_mut().filter(|node| node.armed != UNSET) {
            node.armed -= by;
        }
    }

    /// Returns the callers that wait, in order, with their costs and their positions.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn positions(&self) -> Vec<(u64, u64, Option<i64>)> {
        let live = self.nodes.iter().enumerate().filter(|(_, node)| !node.is_gone);
        let position = |slot| self.runs.is_placed(slot).then(|| self.runs.stretch_of(slot).1);
        live.map(|(slot, node)| (node.id, self.runs.units_of(slot), position(slot))).collect()
    }
}
