//! The atomics of the crate, and its mutex: `std`'s, or loom's or shuttle's in a model run.
//!
//! loom 0.7 does not explore every interleaving of a load followed by a compare-and-swap on the same
//! atomic (its issues 166 and 392). Under `--cfg rmw_loads` a load is a read-modify-write of its own,
//! which makes loom try them all. A store is one too, then: where it races with a read-modify-write, loom leaves open
//! which of them is later, even if that one took the value from before the store. A `SeqCst` load is one always: loom takes it for an `Acquire` one, which may
//! return what was there before another `SeqCst` store; a read-modify-write returns the latest.

#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};

#[cfg(all(test, loom))]
pub(crate) use self::model::{AtomicU64, seq_cst_by_fences};
#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering, fence},
    },
    thread::yield_now,
};

/// Declares a `const fn`; loom's atomics cannot be made in one, so a model run gets a plain `fn`.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(all(test, loom)))]
        $(#[$meta])* $vis const fn $($rest)*

        #[cfg(all(test, loom))]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

/// Declares a type that mapped memory may hold: all of its byte patterns are values.
#[cfg(all(feature = "huge-pages", target_os = "linux", not(any(loom, shuttle))))]
macro_rules! plain_bytes {
    ($item:item) => {
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout)]
        $item
    };
}
#[cfg(not(all(feature = "huge-pages", target_os = "linux", not(any(loom, shuttle)))))]
macro_rules! plain_bytes {
    ($item:item) => {
        $item
    };
}
pub(crate) use plain_bytes;

#[cfg(all(test, loom))]
mod model {
    use std::cell::Cell;
    use std::ops::Deref;

    thread_local! {
        static BY_FENCES: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a model in which a `SeqCst` load is a fence and an `Acquire` load. As a
    /// read-modify-write it would order the reads of its thread before it, for every thread that
    /// changes the atomic after it.
    pub(crate) fn seq_cst_by_fences(run: impl FnOnce()) {
        BY_FENCES.set(true);
        run();
        BY_FENCES.set(false);
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: super::Ordering) -> u64 {
            if order == super::Ordering::SeqCst && BY_FENCES.get() {
                super::fence(order);
                self.0.load(super::Ordering::Acquire)
            } else if cfg!(rmw_loads) || order == super::Ordering::SeqCst {
                self.0.fetch_add(0, super::Ordering::AcqRel)
            } else {
                self.0.load(order)
            }
        }

        pub(crate) fn store(&self, value: u64, order: super::Ordering) {
            if cfg!(rmw_loads) {
                self.0.swap(value, order);
            } else {
                self.0.store(value, order);
            }
        }
    }

    impl Deref for AtomicU64 {
        type Target = loom::sync::atomic::AtomicU64;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }
}
