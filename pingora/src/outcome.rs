//! The outcome of a request that ended without the head of a response.

use pingora_core::{Error, ErrorSource, ErrorType};
use tollgate_adaptive::Outcome;

/// Returns the outcome at the upstream. A fault of the client or of the proxy says nothing of it.
pub(crate) fn outcome(error: &Error) -> Option<Outcome> {
    if *error.esource() != ErrorSource::Upstream {
        return None;
    }
    Some(match error.etype() {
        ErrorType::ConnectTimedout
        | ErrorType::ConnectRefused
        | ErrorType::TLSHandshakeTimedout
        | ErrorType::ReadTimedout
        | ErrorType::WriteTimedout => Outcome::Overloaded,
        _ => Outcome::Failed,
    })
}

/// Returns the status that the client is told, as pingora's own `fail_to_proxy` chooses it. `None`
/// if the client has left.
pub(crate) fn status(error: &Error) -> Option<u16> {
    match (error.etype(), error.esource()) {
        (ErrorType::HTTPStatus(status), _) => Some(*status),
        (_, ErrorSource::Upstream) => Some(502),
        (
            ErrorType::WriteError | ErrorType::ReadError | ErrorType::ConnectionClosed,
            ErrorSource::Downstream,
        ) => None,
        (_, ErrorSource::Downstream) => Some(400),
        (_, ErrorSource::Internal | ErrorSource::Unset) => Some(500),
    }
}
