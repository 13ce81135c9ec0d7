//! Claimed cells: one thread alone may change them, until it settles or drops the claim.

use super::cells::{Cell, Lease};
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering};

/// A cell that this thread alone may change.
///
/// A claim that is dropped before it is settled, as when a clock panics, puts the old lease back.
pub(super) struct Claim<'a> {
    cell: &'a Cell,
    leased: &'a AtomicU64,
    pub(super) was: Lease,
    /// Tokens that this thread has added to `leased` for the next lease.
    pub(super) raised: u64,
    settled: bool,
}

impl<'a> Claim<'a> {
    /// Claims a cell, if it still has the lease `was`.
    pub(super) fn new(cell: &'a Cell, leased: &'a AtomicU64, was: Lease) -> Option<Claim<'a>> {
        cell.claim(was).then(|| Claim { cell, leased, was, raised: 0, settled: false })
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
        self.cell.put(Lease::of(size));
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
            self.cell.put(self.was);
        }
    }
}
