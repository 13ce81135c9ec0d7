//! The options of a call on a bucket.

use crate::time::clock::Moment;
use crate::word::plan::PlanTerms;

/// The options of a call, beside its key and its tokens.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallOptions<'a> {
    pub(crate) plan: Option<&'a PlanTerms>,
    pub(crate) now: Option<Moment>,
}

impl CallOptions<'_> {
    pub(crate) const NOW: CallOptions<'static> = CallOptions { plan: None, now: None };

    /// Returns whether the call is now, and under no plan.
    pub(super) fn is_plain(&self) -> bool {
        self.plan.is_none() && self.now.is_none()
    }
}
