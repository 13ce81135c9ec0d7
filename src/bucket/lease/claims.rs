//! Cells that one thread has to itself, for a moment or for good.

use crossbeam_utils::CachePadded;

use super::cells::{Cell, Generation, Lease};
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering};

/// A cell that this thread alone may change. Dropped before it is settled, as when a clock panics, it puts back
/// what was there.
pub(super) struct Claim<'a> {
    cell: &'a Cell,
    generation: Generation,
    leased: &'a AtomicU64,
    pub(super) was: Lease,
    /// By this thread, for the next lease.
    pub(super) raised: u64,
    settled: bool,
}

impl<'a> Claim<'a> {
    /// Claims a cell, if it is still so.
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

    /// A lease of `size` tokens is to come, of which those of the old one count already.
    pub(super) fn count_in(&mut self, size: u64) {
        self.raised = size.saturating_sub(self.was.size());
        if self.raised > 0 {
            self.leased.fetch_add(self.raised, Ordering::Relaxed);
        }
    }

    /// The old lease is over; there is one of `size` tokens, at most what it was raised for.
    pub(super) fn settle(mut self, size: u64) {
        self.settled = true;
        if !injected(Fault::LoweredEarly) {
            self.count_out(self.was.size() + self.raised - size);
        }
        self.cell.put(self.generation, Lease::of(size));
    }

    /// The old lease is over, and with it that life of the cell.
    pub(super) fn close(mut self) {
        if injected(Fault::FoldedOpen) {
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

/// What became of the end of a lease.
pub(super) enum Ended<'a> {
    /// The claim is to be settled, after the commit that ends the lease.
    Lease(Claim<'a>),
    /// There was none, or the cell is closed.
    Nothing(Lease),
    /// Somebody else has the cell.
    NotYet,
}

/// Cells that were closed, the first so many. Dropped, as when a clock panics, it opens them again.
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
