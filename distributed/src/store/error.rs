//! Errors of a store.

use std::error::Error;
use std::fmt;

/// A call of a store failed.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// The effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The call did not take effect; a later one may.
    Refused,
    /// The call may have taken effect.
    Unknown,
    /// The call did not take effect, and no later one will until an operator acts: a password, a
    /// permission, a table that is missing.
    Permanent,
}

impl StoreError {
    /// Returns an error of a kind with its cause.
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
            StoreErrorKind::Permanent => write!(f, "the store takes no such call: {}", self.source),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
