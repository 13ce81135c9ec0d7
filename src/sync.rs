//! The atomics and the locks of the crate: those of `std`, or of loom or shuttle in a model run.
//!
//! loom 0.7 does not explore every interleaving of a load followed by a compare-and-swap on the
//! same atomic (its issues 166 and 392). Under `--cfg rmw_loads` every load is a read-modify-write,
//! which makes loom explore them all. Stores become swaps as well: loom does not order a plain
//! store against a concurrent read-modify-write that read the value preceding the store.
//!
//! A `SeqCst` load is always a read-modify-write. loom treats a `SeqCst` load as `Acquire`, which
//! may return the value before another `SeqCst` store; a read-modify-write returns the latest
//! value.

use std::time::{Duration, Instant};

#[cfg(not(target_has_atomic = "64"))]
compile_error!("tollgate needs a target with atomics of 64 bits: a bucket is one atomic word of 64 bits");

/// Whether this is a model run: bounds are small there, so that all interleavings are explored.
pub(crate) const MODEL: bool = cfg!(all(test, any(loom, shuttle)));

#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};

#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use self::once::OnceLock;
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};

#[cfg(all(test, loom))]
pub(crate) use self::model::{AtomicU64, seq_cst_by_fences};
#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering, fence},
    },
    thread::yield_now,
};

/// The longest wait of [`Turns`]: some thirty time slices of Linux.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// The turns for which time is no bound: while a process is stopped, no thread comes back.
const FIRST_TURNS: usize = 32;
/// Whether std has a clock for the waits. A model run has none: it would depend on it.
const HAS_CLOCK: bool = !MODEL && !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// The turns that a thread gives others while it waits for one of them.
///
/// Time bounds them as well as their number, because a turn takes as long as other threads run:
/// turns for 10 ms of an idle machine are minutes of a busy one.
pub(crate) struct Turns {
    passed: usize,
    most: usize,
    until: Option<Instant>,
}

impl Turns {
    /// Returns at most this many turns.
    pub(crate) fn new(most: usize) -> Turns {
        Turns { passed: 0, most, until: None }
    }

    /// Yields, or returns `None` if the wait is over.
    #[cold]
    pub(crate) fn pass(&mut self) -> Option<()> {
        let mut is_over = self.passed >= self.most;
        if HAS_CLOCK {
            let now = Instant::now();
            is_over |= now > *self.until.get_or_insert(now + LONGEST_WAIT) && self.passed > FIRST_TURNS;
        }
        self.passed += 1;
        (!is_over).then(yield_now)
    }
}

/// Declares a `const fn`. In a loom run it is a plain `fn`: loom's atomics have no `const`
/// constructor.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(all(test, loom)))]
        $(#[$meta])* $vis const fn $($rest)*

        #[cfg(all(test, loom))]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

#[cfg(all(test, any(loom, shuttle)))]
mod once {
    use super::{AtomicU64, Ordering, yield_now};

    const UNMADE: u64 = 0;
    const MAKING: u64 = 1;
    const MADE: u64 = 2;

    /// The part of std's `OnceLock` that the crate uses, with its orderings, for a model checker.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        state: AtomicU64,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            OnceLock { state: AtomicU64::new(UNMADE), value: std::sync::OnceLock::new() }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            if self.state.load(Ordering::Acquire) == MADE { self.value.get() } else { None }
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            loop {
                match self.state.compare_exchange(UNMADE, MAKING, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => {
                        let value = self.value.get_or_init(make);
                        self.state.store(MADE, Ordering::Release);
                        return value;
                    }
                    Err(MADE) => return self.value.get().expect("it was made"),
                    Err(_) => yield_now(),
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::cell::Cell;
    use std::ops::Deref;

    thread_local! {
        static BY_FENCES: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a model in which a `SeqCst` load is a fence and an `Acquire` load. A read-modify-write
    /// would be stronger: it orders the thread's earlier reads before every later change of the
    /// atomic.
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
