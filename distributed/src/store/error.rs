//! Errors of a store.

use std::error::Error;
use std::fmt;

/// The error of a failed call of a store.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// The effect of a failed call on the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The call had no effect. A later one may succeed.
    Refused,
    /// The call may have had its effect: it was sent, and its answer is missing or not one of the
    /// store. A limiter does not send it again.
    Unknown,
    /// The call had no effect. Later ones fail as well until an operator acts: a password, a
    /// permission, a missing table.
    Permanent,
}

impl StoreError {
    /// Returns an error with a kind and a cause.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
        StoreError { kind, source: source.into() }
    }

    /// Returns the effect of the call.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StoreErrorKind::Refused => write!(f, "the store refused the call: {}", self.source),
            StoreErrorKind::Unknown => write!(f, "the store did not answer the call: {}", self.source),
            StoreErrorKind::Permanent => write!(f, "the store fails until an operator acts: {}", self.source),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
