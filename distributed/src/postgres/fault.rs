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
    // PgBouncer has the same code for all of its errors.
    if error.as_db_error().is_some_and(|told| told.message().contains("startup parameter")) {
        return shared(&text(&error));
    }
    let kind = error.code().map_or(StoreErrorKind::Refused, of_code);
    // A connection that was not made had no call.
    let kind = if kind == StoreErrorKind::Unknown { StoreErrorKind::Refused } else { kind };
    told(kind, error)
}

/// Returns the error of a connection that may be given to other clients.
pub(super) fn shared(why: &str) -> Fault {
    let message = format!("{why}: behind a pooler, the URL needs `pooler=true`, or the options `pooler`");
    Fault::new(StoreErrorKind::Permanent, message)
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

/// Tells whether the server undid a statement, so that its text may be sent: for a conflict, or as
/// the prepared statement is gone.
pub(super) fn is_undone(error: &Error) -> bool {
    let undone = [
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::INVALID_SQL_STATEMENT_NAME,
        &SqlState::FEATURE_NOT_SUPPORTED,
    ];
    error.code().is_some_and(|code| undone.contains(&code))
}

/// Tells whether a connection must be replaced: it is closed, its server refuses writes, or its
/// prepared statement is gone.
pub(super) fn ends_session(error: &Error) -> bool {
    match error.code() {
        Some(code) => {
            let known = [
                &SqlState::READ_ONLY_SQL_TRANSACTION,
                &SqlState::INVALID_SQL_STATEMENT_NAME,
                &SqlState::FEATURE_NOT_SUPPORTED,
                &SqlState::UNDEFINED_FUNCTION,
            ];
            known.contains(&code) || code.code().starts_with("57P")
        }
        None => true,
    }
}

/// Returns the effect of a statement that the server ended with an error. The server undid it.
fn of_code(code: &SqlState) -> StoreErrorKind {
    match code.code().get(..2) {
        // A failed connection.
        Some("08") => StoreErrorKind::Unknown,
        // A read-only server, a missing prepared statement, a conflict, a lack of resources, a
        // lock, an operator, the file system.
        Some("25" | "26" | "40" | "53" | "55" | "57" | "58") => StoreErrorKind::Refused,
        _ => StoreErrorKind::Permanent,
    }
}
