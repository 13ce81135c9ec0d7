//! TLS of clients, with certificates that can be replaced.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{Error, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::io::Io;

/// A certificate chain and its private key, as PEM files. A reload reads them again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// The certificate of new connections, for TLS 1.2 and 1.3. ALPN selects HTTP/2 or HTTP/1.1.
pub(crate) struct Tls(RwLock<Arc<ServerConfig>>);

impl Tls {
    /// Reads both files. The error is one sentence that names the file and its fault.
    pub(crate) fn read(files: &Certificate) -> Result<Tls, String> {
        Ok(Tls(RwLock::new(config(files)?)))
    }

    /// Reads both files again, for new connections. An error changes nothing.
    pub(crate) fn replace(&self, files: &Certificate) -> Result<(), String> {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config(files)?;
        Ok(())
    }

    pub(super) async fn accept<T: Io>(&self, io: T) -> io::Result<TlsStream<T>> {
        let config = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        TlsAcceptor::from(config).accept(io).await
    }
}

fn config(files: &Certificate) -> Result<Arc<ServerConfig>, String> {
    let chain = read_pem(&files.chain, "certificate", "")?;
    let mut keys: Vec<PrivateKeyDer<'_>> = read_pem(&files.key, "private key", "unencrypted ")?;
    let key = keys.swap_remove(0);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(|error| {
        let (chain, key) = (files.chain.display(), files.key.display());
        match error {
            Error::InconsistentKeys(_) => {
                format!("the private key in {key} is not the one of the certificate in {chain}")
            }
            Error::InvalidCertificate(_) => format!("the certificate in {chain} is malformed: {error}"),
            _ => format!("cannot use the private key in {key}: {error}"),
        }
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Reads the items of a PEM file, of which there is one at least. Items with another `form` are
/// passed over.
pub(crate) fn read_pem<T: PemObject>(path: &Path, kind: &str, form: &str) -> Result<Vec<T>, String> {
    let at = path.display();
    let file = std::fs::read(path).map_err(|error| format!("cannot read the {kind} in {at}: {error}"))?;
    match T::pem_slice_iter(&file).collect::<Result<Vec<T>, pem::Error>>() {
        Ok(items) if items.is_empty() => Err(format!("no {form}{kind} in {at}")),
        Ok(items) => Ok(items),
        Err(error) => Err(format!("the {kind} in {at} is malformed: {error}")),
    }
}
