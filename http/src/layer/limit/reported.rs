//! The faults that a layer has already reported.

use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(feature = "tracing"))]
use super::stderr::report;
#[cfg(feature = "tracing")]
use super::tracing::report;
use crate::request::check::Check;

/// One bit per [`Check`].
#[derive(Debug, Default)]
pub(crate) struct Reported(AtomicU32);

impl Reported {
    /// Marks a check as reported, and returns whether it was not.
    pub(crate) fn mark(&self, check: Check) -> bool {
        let bit = 1 << check as u32;
        // Refused requests come here, so a fault that stays writes to this line once.
        self.0.load(Ordering::Relaxed) & bit == 0 && self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Reports a fault of the named limit, once.
    pub(crate) fn report(&self, policy: &str, check: Check) {
        if self.mark(check) {
            report(policy, check);
        }
    }
}
