//! A decision and the place where it was made.

use std::error::Error;
use std::fmt;
use std::ops::Deref;

/// The place where a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The local limit in front of the shared one.
    Local,
    /// Tokens that this process holds. Also a refusal of tokens that mature later, each decision of
    /// a rule that is unlimited or blocked, and a refusal of
    /// [`try_acquire_local`](crate::DistributedLimiter::try_acquire_local) while a call is due.
    Lease,
    /// A refusal by the level that the store had at its last answer, or of more tokens than the
    /// burst.
    Shadow,
    /// An answer of the store that the request waited for.
    Store,
    /// This process's share of the quota, while the store does not answer:
    /// [`OnOutage::Local`](crate::OnOutage::Local).
    Fallback,
    /// A grant by [`OnOutage::Allow`](crate::OnOutage::Allow), or a refusal by
    /// [`OnOutage::Deny`](crate::OnOutage::Deny).
    FailOpen,
}

/// A [`Granted`](tollgate::Granted), a [`Denied`](tollgate::Denied), an
/// [`AllDenied`](tollgate::AllDenied) or a [`Snapshot`](tollgate::Snapshot), with its source.
///
/// It dereferences to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    answer: T,
    source: Source,
}

impl<T> Sourced<T> {
    pub(crate) fn new(answer: T, source: Source) -> Sourced<T> {
        Sourced { answer, source }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { answer: change(self.answer), source: self.source }
    }

    /// Returns the place where the decision was made.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the answer without its source.
    pub fn into_inner(self) -> T {
        self.answer
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.answer
    }
}

impl<T: fmt::Display> fmt::Display for Sourced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.answer.fmt(f)
    }
}

impl<T: Error + 'static> Error for Sourced<T> {}
