//! Errors of PostgreSQL as errors of a store.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::sql::fault::Fault;
use crate::store::error::StoreErrorKind;

/// Returns the error of a statement.
pub(super) fn of_statement(error: Error) -> Fault {
    let kind = error.code().map_or(StoreErrorKind::Unknown, of_code);
    told(kind, error)
}

/// Returns the error of a connection that was not made.
pub(super) fn of_connect(error: Error) -> Fault {
    let kind = error.code().map_or(StoreErrorKind::Refused, of_code);
    // A connection that was not made had no call.
    let kind = if kind == StoreErrorKind::Unknown { StoreErrorKind::Refused } else { kind };
    told(kind, error)
}

/// Returns the text of an error and of its causes.
pub(super) fn text(error: &Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns an error whose text is that of the server, if the server sent one.
fn told(kind: StoreErrorKind, error: Error) -> Fault {
    match error.as_db_error() {
        Some(told) => Fault::new(kind, told.clone()),
        None => Fault::new(kind, text(&error)),
    }
}

/// Tells whether the server undid a statement for a conflict, so that it may be sent again.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Tells whether a connection must be replaced: it is closed, or its server refuses writes.
pub(super) fn ends_session(error: &Error) -> bool {
    let ends =
        |code: &SqlState| *code == SqlState::READ_ONLY_SQL_TRANSACTION || code.code().starts_with("57P");
    error.code().is_none_or(ends)
}

/// Returns the effect of a statement that the server ended with an error. The server undid it.
fn of_code(code: &SqlState) -> StoreErrorKind {
    match code.code().get(..2) {
        // A failed connection.
        Some("08") => StoreErrorKind::Unknown,
        // A read-only server, a conflict, a lack of resources, a lock, an operator, the file
        // system.
        Some("25" | "40" | "53" | "55" | "57" | "58") => StoreErrorKind::Refused,
        _ => StoreErrorKind::Permanent,
    }
}
