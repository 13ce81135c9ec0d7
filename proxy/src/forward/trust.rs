//! The TLS of connections to an upstream: the check of its certificate, and its choice of HTTP.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::connect::BoxError;
use crate::config::settings::{Settings, Upstream};
use crate::config::upstream::server_name;
use tollgate_common::net::io::Io;

/// The client's side of TLS.
pub(crate) struct Trust {
    name: ServerName<'static>,
    /// It offers HTTP/2 and HTTP/1.1.
    both: TlsConnector,
    /// It offers HTTP/1.1, for a connection that is to be upgraded.
    http1: TlsConnector,
}

impl Trust {
    /// Returns `None` for an upstream without TLS.
    pub(crate) fn new(upstream: &Upstream, settings: &Settings) -> Option<Trust> {
        let (Upstream::Tls(_), Some(name)) = (upstream, server_name(upstream)) else { return None };
        let mut roots = RootCertStore::empty();
        // The settings have at least one, and a host may have others that are malformed.
        roots.add_parsable_certificates(settings.upstream_roots.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("the provider has them").with_root_certificates(roots);
        let config = config.with_no_client_auth();
        let offers = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        Some(Trust { name, both: offers(&[b"h2", b"http/1.1"]), http1: offers(&[b"http/1.1"]) })
    }

    /// Shakes hands. Returns whether the upstream chose HTTP/2, besides the stream.
    pub(super) async fn shake_hands(
        &self,
        io: Box<dyn Io>,
        only_http1: bool,
    ) -> Result<(Box<dyn Io>, bool), BoxError> {
        let connector = if only_http1 { &self.http1 } else { &self.both };
        let stream = connector.connect(self.name.clone(), io).await.map_err(explained)?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::new(stream), is_http2))
    }
}

/// Names the setting that accepts the certificate of a private authority.
fn explained(error: std::io::Error) -> BoxError {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            format!("{error}; upstream_ca names a file of private authorities").into()
        }
        _ => error.into(),
    }
}
