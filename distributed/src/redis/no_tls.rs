//! In place of `tls.rs`, without the feature `redis-tls`.

use redis::{ConnectionInfo, ErrorKind, RedisResult};

use super::tls_files::TlsFiles;

/// Returns the settings.
///
/// # Errors
///
/// There are files of TLS.
pub(crate) fn secured(info: ConnectionInfo, files: &TlsFiles) -> RedisResult<ConnectionInfo> {
    let lacking = (ErrorKind::InvalidClientConfig, "options of TLS need the feature \"redis-tls\"");
    if files.is_empty() { Ok(info) } else { Err(lacking.into()) }
}
