//! The effect of a failed call: by an error of the server, or of the connection.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::slots::{Address, read_address};
use crate::store::error::{StoreError, StoreErrorKind};

/// The error of a call.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: RedisError,
    /// Whether the call may have reached the server.
    pub(crate) sent: bool,
}

impl Failure {
    pub(crate) fn not_sent(error: RedisError) -> Failure {
        Failure { error, sent: false }
    }

    pub(crate) fn sent(error: RedisError) -> Failure {
        Failure { error, sent: true }
    }

    /// Tells whether the keys of the call are on several nodes of a cluster.
    pub(crate) fn is_cross_slot(&self) -> bool {
        code(&self.error) == Some("CROSSSLOT")
    }

    /// Returns the index of the key that holds no bucket, counted from 1.
    pub(crate) fn bad_key(&self) -> Option<usize> {
        let detail = (self.error.code() == Some("BADSTATE")).then(|| self.error.detail())??;
        detail.split_whitespace().next()?.parse().ok()
    }

    /// Tells whether a key holds a value that is no number, or the largest one.
    pub(crate) fn is_of_value(&self) -> bool {
        let detail = self.error.detail().unwrap_or_default();
        match code(&self.error) {
            Some("ERR") => is_no_number(detail),
            code => code == Some("WRONGTYPE"),
        }
    }

    /// Returns the redirection of a call that the node did not run.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let asking = match self.error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            _ => return None,
        };
        Some(Redirect { address: read_address(self.error.redirect_node()?.0)?, asking })
    }

    /// Returns the effect of the call.
    pub(crate) fn kind(&self) -> StoreErrorKind {
        match code(&self.error) {
            Some(code) => kind_of_code(code, self.error.detail().unwrap_or_default()),
            None => match self.error.kind() {
                ErrorKind::AuthenticationFailed
                | ErrorKind::InvalidClientConfig
                | ErrorKind::RESP3NotSupported => StoreErrorKind::Permanent,
                ErrorKind::ClusterConnectionNotFound => StoreErrorKind::Refused,
                _ if !self.sent || self.error.is_connection_refusal() => StoreErrorKind::Refused,
                _ => StoreErrorKind::Unknown,
            },
        }
    }
}

/// The redirection of a call to another node.
pub(crate) struct Redirect {
    pub(crate) address: Address,
    /// Whether the redirection is for this call only.
    pub(crate) asking: bool,
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        StoreError::new(failure.kind(), failure.error)
    }
}

/// Tells whether a new connection may succeed: after a loss, after a silence, or if the server
/// refuses writes or loads its data.
pub(crate) fn is_of_connection(error: &RedisError) -> bool {
    match code(error) {
        Some(code) => matches!(code, "LOADING" | "MASTERDOWN" | "NOAUTH" | "READONLY"),
        None => error.kind() != ErrorKind::Client,
    }
}

/// Tells whether the server lacks the script. The call did not run.
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Returns the code of a server's error. Servers before 7.0 wrap the error of a command in a
/// script: `ERR Error running script (...): @user_script: 1: -READONLY You can't write ...`.
fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    if code != "ERR" {
        return Some(code);
    }
    let is_code = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let words = error.detail().unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.strip_prefix('-')).find(is_code).or(Some(code))
}

fn kind_of_code(code: &str, detail: &str) -> StoreErrorKind {
    match code {
        "ASK" | "BUSY" | "CLUSTERDOWN" | "EXECABORT" | "LOADING" | "MASTERDOWN" | "MISCONF" | "MOVED"
        | "NOREPLICAS" | "NOSCRIPT" | "OOM" | "READONLY" | "TRYAGAIN" => StoreErrorKind::Refused,
        "BADSTATE" | "CROSSSLOT" | "DENIED" | "NOAUTH" | "NOPERM" | "NOPROTO" | "WRONGPASS" | "WRONGTYPE" => {
            StoreErrorKind::Permanent
        }
        "ERR" if detail.contains("max number of clients") => StoreErrorKind::Refused,
        "ERR" if is_no_number(detail) => StoreErrorKind::Permanent,
        "ERR" if detail.contains("nknown command") || detail.contains("script") => StoreErrorKind::Permanent,
        // The errors of a proxy are unknown codes, and it may have passed the call on.
        _ => StoreErrorKind::Unknown,
    }
}

/// Tells whether an error is that of an `INCRBY` on a text, or beyond 2^63.
fn is_no_number(detail: &str) -> bool {
    detail.contains("not an integer") || detail.contains("would overflow")
}
