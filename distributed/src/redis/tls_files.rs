//! The files of the certificates of a connection with TLS.

use std::path::PathBuf;

/// Paths of PEM files. An empty path is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TlsFiles {
    /// The authorities, in place of those of the system.
    pub(crate) ca: PathBuf,
    /// The certificate of the client, and its key.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// Whether the certificate of a server may be that of another host.
    pub(crate) skip_hostname: bool,
}

impl TlsFiles {
    pub(crate) fn is_empty(&self) -> bool {
        *self == TlsFiles::default()
    }
}
