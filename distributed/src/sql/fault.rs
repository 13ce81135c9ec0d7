//! An error that several callers share.

use std::error::Error;
use std::io;
use std::sync::Arc;

use crate::store::error::{StoreError, StoreErrorKind};

/// An error of a transaction or of a connection, which fails all calls in it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: StoreErrorKind,
    error: Arc<dyn Error + Send + Sync>,
}

impl Fault {
    pub(crate) fn new(kind: StoreErrorKind, error: impl Into<Box<dyn Error + Send + Sync>>) -> Fault {
        Fault { kind, error: Arc::from(error.into()) }
    }
}

/// The end of a runtime while it makes a connection.
impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::new(StoreErrorKind::Refused, error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        StoreError::new(fault.kind, fault.error)
    }
}
