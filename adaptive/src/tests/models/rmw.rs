//! An atomic of loom whose loads are read-modify-writes: loom then explores every interleaving of a
//! load and a compare-and-swap.

use std::ops::Deref;

use loom::sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        AtomicU64(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, _: Ordering) -> u64 {
        self.0.fetch_add(0, Ordering::AcqRel)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.0.swap(value, order);
    }
}

impl Deref for AtomicU64 {
    type Target = loom::sync::atomic::AtomicU64;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
