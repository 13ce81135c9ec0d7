//! Claimed cells: one thread has them to itself, for a moment or for good.

use crossbeam_utils::CachePadded;

use super::cells::{Cell, Generation, Lease};
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering};

/// A cell that this thread alone may change.
///
/// A claim that is dropped before it is settled, as when a clock panics, puts the old lease back.
pub(super) struct Claim<'a> {
    cell: &'a Cell,
    generation: Generation,
    leased: &'a AtomicU64,
    pub(super) was: Lease,
    /// Tokens that this thread has added to `leased` for the next lease.
    pub(super) raised: u64,
    settled: bool,
}

impl<'a> Claim<'a> {
    /// Claims a cell, if it still has the lease `was`.
    pub(super) fn new(
        cell: &'a Cell,
        generation: Generation,
        leased: &'a AtomicU64,
        was: Lease,
    ) -> Option<Claim<'a>> {
        cell.claim(generation, was).then(|| Claim {
            cell,
            generation,
            leased,
            was,
            raised: 0,
            settled: false,
        })
    }

    /// Adds a coming lease of `size` tokens to `leased`; the tokens of the old lease count already.
    pub(super) fn count_in(&mut self, size: u64) {
        self.raised = size.saturating_sub(self.was.size());
        if self.raised > 0 {
            self.leased.fetch_add(self.raised, Ordering::Relaxed);
        }
    }

    /// Ends the old lease and stores one of `size` tokens, at most the size that was counted in.
    pub(super) fn settle(mut self, size: u64) {
        self.settled = true;
        if !injected(Fault::LoweredEarly) {
            self.count_out(self.was.size() + self.raised - size);
        }
        self.cell.put(self.generation, Lease::of(size));
    }

    /// Ends the old lease and closes the cell for this generation.
    pub(super) fn close(mut self) {
        if injected(Fault::DemoteLeavesOpen) {
            return self.settle(0);
        }
        self.settled = true;
        self.count_out(self.was.size());
        self.cell.close(self.generation);
    }

    pub(super) fn count_out(&self, by: u64) {
        if by > 0 {
            self.leased.fetch_sub(by, Ordering::Release);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.count_out(self.raised);
            self.cell.put(self.generation, self.was);
        }
    }
}

/// The result of ending the lease of a cell.
pub(super) enum Ended<'a> {
    /// A lease was ended: the claim is to be settled after the commit that ends the lease.
    Lease(Claim<'a>),
    /// There was no lease, or the cell is closed.
    Nothing(Lease),
    /// Another thread has the cell.
    NotYet,
}

/// A guard of cells that are closed one after another: a drop opens those closed so far.
///
/// The first `closed` cells are closed. A drop before the last one means that a cell could not be
/// claimed, or that a clock panicked. After the last cell `closed` is set to 0, and the drop opens
/// none.
pub(super) struct Closing<'a> {
    pub(super) cells: &'a [CachePadded<Cell>],
    pub(super) generation: Generation,
    pub(super) closed: usize,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.cells[..self.closed].iter().for_each(|cell| cell.reopen(self.generation));
    }
}
