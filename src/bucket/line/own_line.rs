//! The line of a bucket that is in no store.

use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;

use crate::bucket::line::caller_line::CallerLine;
use crate::sync::{Mutex, MutexGuard, const_fn};

/// The line of a `TokenBucket`, made by the first wait.
pub(crate) struct OwnLine {
    callers: Mutex<Option<Box<CallerLine>>>,
    /// Whether a caller has waited.
    ///
    /// Relaxed: it is set before a caller's place is committed to the word, and loaded after the
    /// commit of the verb that gives back.
    pub(crate) waited: AtomicBool,
}

impl OwnLine {
    const_fn! {
        pub(crate) const fn new() -> OwnLine {
            OwnLine { callers: Mutex::new(None), waited: AtomicBool::new(false) }
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Box<CallerLine>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
