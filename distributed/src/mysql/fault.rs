//! Errors of MariaDB as errors of a store.

use mysql_async::Error;

use crate::sql::fault::Fault;
use crate::store::error::StoreErrorKind;

/// Returns the error of statements whose transaction was not committed.
pub(super) fn of_statement(error: Error) -> Fault {
    let kind = match &error {
        Error::Server(server) => of_code(server.code),
        _ => StoreErrorKind::Unknown,
    };
    Fault::new(kind, error)
}

/// Returns the error of a connection that was not made.
pub(super) fn of_connect(error: Error) -> Fault {
    let kind = match &error {
        Error::Server(server) if of_code(server.code) == StoreErrorKind::Permanent => {
            StoreErrorKind::Permanent
        }
        Error::Url(_) => StoreErrorKind::Permanent,
        _ => StoreErrorKind::Refused,
    };
    Fault::new(kind, error)
}

/// Tells whether the server undid statements for a conflict, so that they may be sent again: a
/// deadlock, or the timeout of a lock.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Server(server) if matches!(server.code, 1213 | 1205))
}

/// Tells whether a connection must be replaced: it is broken, or its server refuses writes.
pub(super) fn ends_session(error: &Error) -> bool {
    match error {
        Error::Server(server) => matches!(server.code, 1053 | 1290 | 1792 | 1836 | 1927),
        _ => true,
    }
}

/// Returns the effect of a transaction that ended with an error.
fn of_code(code: u16) -> StoreErrorKind {
    match code {
        // The server shuts down, or an operator ended the session or the statement, perhaps in a
        // commit.
        1053 | 1317 | 1927 | 1969 | 3024 => StoreErrorKind::Unknown,
        // A lack of memory, disk or connections; a deadlock or a lock; a read-only server.
        1021 | 1037 | 1038 | 1040 | 1041 | 1114 | 1135 | 1203 | 1205 | 1213 | 1226 | 1290 | 1792 | 1836 => {
            StoreErrorKind::Refused
        }
        _ => StoreErrorKind::Permanent,
    }
}
