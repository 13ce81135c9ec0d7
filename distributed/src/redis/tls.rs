//! TLS to Redis, by rustls.

use std::fs;
use std::path::Path;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    TlsCertificates,
};
use rustls::crypto::{CryptoProvider, ring};

use super::tls_files::TlsFiles;

/// Returns the settings with the certificates of some files, if they are those of TLS.
///
/// If the process has no crypto provider of rustls yet, it gets that of `ring`.
///
/// # Errors
///
/// A file cannot be read or has no certificate, or the settings are without TLS.
pub(crate) fn secured(info: ConnectionInfo, files: &TlsFiles) -> RedisResult<ConnectionInfo> {
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        let invalid = (ErrorKind::InvalidClientConfig, "options of TLS are for a scheme with rediss");
        return if files.is_empty() { Ok(info) } else { Err(invalid.into()) };
    }
    if CryptoProvider::get_default().is_none() {
        // Another thread may be first.
        let _ = ring::default_provider().install_default();
    }
    if files.is_empty() {
        return Ok(info);
    }
    let has_own = !files.cert.as_os_str().is_empty() || !files.key.as_os_str().is_empty();
    let client_tls = match has_own {
        true => Some(ClientTlsConfig { client_cert: read(&files.cert)?, client_key: read(&files.key)? }),
        false => None,
    };
    let root_cert = (!files.ca.as_os_str().is_empty()).then(|| read(&files.ca)).transpose()?;
    let client = Client::build_with_tls(info, TlsCertificates { client_tls, root_cert });
    let bad = |error: RedisError| invalid("a certificate or a key cannot be read", error.to_string());
    let info = client.map_err(bad)?.get_connection_info().clone();
    let mut address = info.addr().clone();
    address.set_danger_accept_invalid_hostnames(files.skip_hostname);
    Ok(info.set_addr(address))
}

fn read(path: &Path) -> RedisResult<Vec<u8>> {
    let bad = |error| invalid("a file of TLS cannot be read", format!("{}: {error}", path.display()));
    fs::read(path).map_err(bad)
}

fn invalid(text: &'static str, detail: String) -> RedisError {
    (ErrorKind::InvalidClientConfig, text, detail).into()
}
