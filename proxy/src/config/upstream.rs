//! The text forms of upstreams, and the certificates that those with TLS are checked by.

use std::path::Path;
use std::sync::Arc;

use hyper::Uri;
use hyper::http::uri::Authority;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, ServerName};

use super::settings::{Settings, Upstream};
use tollgate_common::net::tls::read_pem;
use tollgate_common::settings::values::socket_path;

const FORM: &str = "expected http://HOST[:PORT], https://HOST[:PORT], h2c://HOST[:PORT] or unix:PATH";

/// Returns an address to connect to.
pub(super) fn upstream(text: &str) -> Result<Upstream, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(path).map(Upstream::Unix);
    }
    let url = text.parse::<Uri>().map_err(|_| FORM)?;
    let form = match url.scheme_str() {
        Some("http") => Upstream::Tcp,
        Some("https") => Upstream::Tls,
        Some("h2c") => Upstream::H2c,
        _ => return Err(FORM.to_owned()),
    };
    let upstream = form(authority(&url, text)?);
    match server_name(&upstream) {
        None if upstream.is_tls() => Err("the host is no name of a certificate".to_owned()),
        _ => Ok(upstream),
    }
}

fn authority(url: &Uri, text: &str) -> Result<Authority, &'static str> {
    // A parsed URL has no fragment left, and its path is `/` where the text has none.
    let bare = url.path() == "/" && !text.contains(['?', '#']);
    let authority = url.authority().filter(|_| bare).ok_or(FORM)?;
    if authority.as_str().contains('@') {
        return Err("a user in the URL of an upstream is not supported");
    }
    match authority.port_u16() {
        // There is none, too, for one that is no number below 65,536.
        None if authority.as_str() == authority.host() => Ok(authority.clone()),
        None | Some(0) => Err("expected a port from 1 to 65535"),
        Some(_) => Ok(authority.clone()),
    }
}

/// Returns the name that the certificate of an upstream must have.
pub(crate) fn server_name(upstream: &Upstream) -> Option<ServerName<'static>> {
    let host = upstream.authority()?.host().trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}

/// Reads the certificates of the authorities that the settings name, or those of this host if an
/// upstream needs them.
pub(super) fn read_roots(to: &mut Settings) -> Result<(), String> {
    to.upstream_roots = match &to.upstream_ca {
        Some(path) => of_file(path)?,
        None if to.upstreams.iter().any(Upstream::is_tls) => of_host()?,
        None => Arc::new([]),
    };
    Ok(())
}

fn of_file(path: &Path) -> Result<Arc<[CertificateDer<'static>]>, String> {
    let certificates: Vec<CertificateDer<'_>> = read_pem(path, "certificate", "")?;
    for certificate in &certificates {
        let added = RootCertStore::empty().add(certificate.clone());
        added.map_err(|error| format!("the certificate in {} is malformed: {error}", path.display()))?;
    }
    Ok(certificates.into())
}

/// A host may have certificates that are malformed. These are passed over later.
fn of_host() -> Result<Arc<[CertificateDer<'static>]>, String> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs.into());
    }
    let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    Err(format!("this host has no certificates of authorities{why}; upstream_ca names a file of some"))
}
