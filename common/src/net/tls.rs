//! TLS of clients, with certificates that can be replaced, and TLS to a server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use super::io::Io;
use crate::settings::file;

/// A certificate chain and its private key, as PEM files. A reload reads them again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Certificate {
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// The clients of which a certificate is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clients {
    /// The certificates of their authorities, a PEM file.
    pub authority: PathBuf,
    /// The names of which a certificate has one. None are any.
    pub names: Vec<String>,
}

/// The certificate of new connections, for TLS 1.2 and 1.3. ALPN selects HTTP/2 or HTTP/1.1.
pub struct Tls(RwLock<Handshakes>);

#[derive(Clone)]
struct Handshakes {
    config: Arc<ServerConfig>,
    /// The names of which the client's certificate has one. None are any.
    names: Arc<[ClientName]>,
}

/// A name of a client's certificate.
enum ClientName {
    /// The name of a host, or its address.
    Host(ServerName<'static>),
    /// As in `spiffe://cluster.local/ns/default/sa/envoy`, compared as a whole.
    Uri(String),
}

impl ClientName {
    fn of(name: &str) -> Result<ClientName, String> {
        if name.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()) {
            return Ok(ClientName::Uri(name.to_owned()));
        }
        let host = ServerName::try_from(name.to_owned()).map(ClientName::Host);
        host.map_err(|_| format!("{name:?} is no name of a certificate"))
    }

    fn is_of(&self, own: &CertificateDer<'_>) -> bool {
        match self {
            ClientName::Host(name) => {
                ParsedCertificate::try_from(own).is_ok_and(|own| verify_server_name(&own, name).is_ok())
            }
            ClientName::Uri(name) => {
                EndEntityCert::try_from(own).is_ok_and(|own| own.valid_uri_names().any(|other| other == name))
            }
        }
    }
}

impl Tls {
    /// Reads both files. The error is one sentence that names the file and its fault.
    pub fn read(files: &Certificate) -> Result<Tls, String> {
        Tls::read_for(files, None)
    }

    /// Reads the files of this server, and of the authorities of its clients.
    pub fn read_for(files: &Certificate, clients: Option<&Clients>) -> Result<Tls, String> {
        Ok(Tls(RwLock::new(terms(files, clients)?)))
    }

    /// Takes the certificate of another one, for new connections.
    pub fn replace(&self, by: Tls) {
        let by = by.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = by;
    }

    pub(super) async fn accept<T: Io>(&self, io: T) -> io::Result<TlsStream<T>> {
        let Handshakes { config, names } = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = TlsAcceptor::from(config).accept(io).await?;
        let certificates = stream.get_ref().1.peer_certificates();
        match names.is_empty() || certificates.is_some_and(|chain| has_name(chain, &names)) {
            true => Ok(stream),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the client has none of the names")),
        }
    }
}

/// Returns whether the first certificate, which is the client's own, has one of the names.
fn has_name(chain: &[CertificateDer<'_>], names: &[ClientName]) -> bool {
    chain.first().is_some_and(|own| names.iter().any(|name| name.is_of(own)))
}

fn terms(files: &Certificate, clients: Option<&Clients>) -> Result<Handshakes, String> {
    let names = clients.map_or(&[][..], |clients| &clients.names).iter().map(|name| ClientName::of(name));
    Ok(Handshakes { names: names.collect::<Result<_, _>>()?, config: config(files, clients)? })
}

/// Returns the verifier of clients by their authorities.
fn verifier(clients: &Clients, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = roots(&clients.authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
    verifier
        .map_err(|error| format!("cannot use the certificates in {}: {error}", clients.authority.display()))
}

/// Reads the certificates of authorities.
fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_pem::<CertificateDer<'_>>(path, "certificate", "")? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("the certificate in {} is malformed: {error}", path.display()))?;
    }
    Ok(roots)
}

/// Reads both files of a certificate.
fn own(files: &Certificate) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = read_pem(&files.chain, "certificate", "")?;
    let mut keys: Vec<PrivateKeyDer<'_>> = read_pem(&files.key, "private key", "unencrypted ")?;
    Ok((chain, keys.swap_remove(0)))
}

/// Returns the fault of a certificate or its key as a sentence.
fn unusable(files: &Certificate, error: &Error) -> String {
    let (chain, key) = (files.chain.display(), files.key.display());
    match error {
        Error::InconsistentKeys(_) => {
            format!("the private key in {key} is not the one of the certificate in {chain}")
        }
        Error::InvalidCertificate(_) => format!("the certificate in {chain} is malformed: {error}"),
        _ => format!("cannot use the private key in {key}: {error}"),
    }
}

fn config(files: &Certificate, clients: Option<&Clients>) -> Result<Arc<ServerConfig>, String> {
    let (chain, key) = own(files)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(verifier(clients, provider)?),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| unusable(files, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The files of the authorities of servers that a system has, where the first one that is there
/// holds.
const OF_SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The side of a client, as PEM files, and the name that the server's certificate has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTrust {
    /// The certificates of the server's authorities. Without a path those of the system are taken.
    pub authority: PathBuf,
    /// The certificate of this client; it has none without paths.
    pub own: Certificate,
    pub name: String,
}

impl ServerTrust {
    /// Returns the name, or an error that names it.
    pub fn server_name(&self) -> Result<ServerName<'static>, String> {
        let name = ServerName::try_from(self.name.clone());
        name.map_err(|_| format!("{:?} is no name of a certificate", self.name))
    }

    /// Reads all files, and returns the client's side for HTTP/2. The error is one sentence that
    /// names the file and its fault.
    pub(super) fn read(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
        let name = self.server_name()?;
        let roots =
            if self.authority.as_os_str().is_empty() { of_system()? } else { roots(&self.authority)? };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("cannot set up TLS: {error}"))?
            .with_root_certificates(roots);
        let mut config = if self.own.chain.as_os_str().is_empty() {
            builder.with_no_client_auth()
        } else {
            let (chain, key) = own(&self.own)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| unusable(&self.own, &error))?
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok((Arc::new(config), name))
    }
}

/// Reads the authorities of the system. Those of a kind that is not known are passed over.
fn of_system() -> Result<RootCertStore, String> {
    let is_there = |path: &&&str| Path::new(path).exists();
    let path = OF_SYSTEM.iter().find(is_there).ok_or_else(|| {
        format!("no certificate of an authority is named, and the system has no {}", OF_SYSTEM.join(", "))
    })?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read_pem::<CertificateDer<'_>>(Path::new(path), "certificate", "")?);
    Ok(roots)
}

/// Reads the items of a PEM file, of which there is one at least. Items with another `form` are
/// passed over.
pub fn read_pem<T: PemObject>(path: &Path, kind: &str, form: &str) -> Result<Vec<T>, String> {
    let at = path.display();
    let file =
        file::bytes(path, file::MOST).map_err(|error| format!("cannot read the {kind} in {at}: {error}"))?;
    match T::pem_slice_iter(&file).collect::<Result<Vec<T>, pem::Error>>() {
        Ok(items) if items.is_empty() => Err(format!("no {form}{kind} in {at}")),
        Ok(items) => Ok(items),
        Err(error) => Err(format!("the {kind} in {at} is malformed: {error}")),
    }
}
