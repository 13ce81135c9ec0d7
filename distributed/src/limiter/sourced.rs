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
    /// Tokens that the store had granted before, and that this process holds.
    Lease,
    /// The level that the store told last: it cannot have the tokens.
    Shadow,
    /// The store.
    Store,
    /// This process's share of the quota, as the store did not answer.
    Fallback,
    /// The policy, which grants everything while the store does not answer, or refuses everything.
    FailOpen,
}

/// A [`Granted`](tollgate::Granted), a [`Denied`](tollgate::Denied) or a
/// [`Snapshot`](tollgate::Snapshot), with its source.
///
/// It has all methods of the answer inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    answer: T,
    source: Source,
}

impl<T> Sourced<T> {
    pub(crate) fn new(answer: T, source: Source) -> Sourced<T> {
        Sourced { answer, source }
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
