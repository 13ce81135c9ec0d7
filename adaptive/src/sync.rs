//! The atomics and the locks of the crate: those of `std`, or of loom or shuttle in a model run.
//!
//! Under `--cfg rmw_loads` a load is a read-modify-write, and a store a swap: `src/sync.rs` of
//! `tollgate` says why.

/// Whether this is a model run: bounds are small there, so that all interleavings are explored.
pub(crate) const MODEL: bool = cfg!(all(test, any(loom, shuttle)));

#[cfg(all(test, loom, rmw_loads))]
#[path = "tests/models/rmw.rs"]
mod rmw;
#[cfg(all(test, loom, rmw_loads))]
pub(crate) use self::rmw::AtomicU64;
#[cfg(all(test, loom, not(rmw_loads)))]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Declares a `const fn`; a plain `fn` in a loom run, whose atomics have no `const` constructor.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(all(test, loom)))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(all(test, loom))]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_fn;
