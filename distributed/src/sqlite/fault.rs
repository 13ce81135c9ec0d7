//! Errors of SQLite as errors of a store.

use rusqlite::{Error, ErrorCode};

use super::table::Unread;
use crate::sql::fault::Fault;
use crate::store::error::StoreErrorKind;

/// A part of a transaction, for the effect of an error in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the commit: an error undoes the transaction.
    Body,
    /// The commit.
    Commit,
}

/// Returns the error of a part of a transaction.
pub(super) fn fault(error: Error, phase: Phase) -> Fault {
    Fault::new(kind(&error, phase), error)
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        fault(error, Phase::Body)
    }
}

impl From<Unread> for Fault {
    fn from(unread: Unread) -> Fault {
        match unread {
            Unread::Row(error) => Fault::new(error.kind(), error),
            Unread::File(error) => error.into(),
        }
    }
}

/// Returns the effect of an error. A full disk has stored nothing: SQLite writes the log before the
/// commit counts. A failed write or sync in a commit may have stored it.
fn kind(error: &Error, phase: Phase) -> StoreErrorKind {
    use ErrorCode as Code;
    match error.sqlite_error_code() {
        Some(
            Code::DatabaseBusy
            | Code::DatabaseLocked
            | Code::FileLockingProtocolFailed
            | Code::OutOfMemory
            | Code::OperationInterrupted
            | Code::OperationAborted
            | Code::DiskFull,
        ) => StoreErrorKind::Refused,
        Some(Code::SystemIoFailure) if phase == Phase::Body => StoreErrorKind::Refused,
        Some(Code::SystemIoFailure) => StoreErrorKind::Unknown,
        // Among them: a corrupt file, no database, a read-only one, no such table.
        _ => StoreErrorKind::Permanent,
    }
}
