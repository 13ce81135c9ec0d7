//! Certificates, of a private authority or of their own, and both sides of TLS.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    generate_simple_self_signed,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tokio_rustls::TlsConnector;
use tollgate_testing::wire::{Connection, PATIENCE};

use crate::net::tls::Certificate as Files;

use super::{Folder, Http2, block_on};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, both as PEM.
pub struct Certificate {
    chain: String,
    key: String,
}

impl Authority {
    pub fn new() -> Authority {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let mut params = CertificateParams::new(Vec::new()).expect("no name is malformed");
        // Another name than that of its certificates, or these seem to be their own issuers.
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        let pem = params.self_signed(&key).expect("it can be signed").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Writes the certificate of the authority, and returns the path.
    pub fn write(&self, folder: &Folder) -> String {
        folder.write("ca.pem", &self.pem)
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("it was made here")
    }

    /// Signs a certificate for a host.
    pub fn sign(&self, host: &str) -> Certificate {
        self.sign_until(host, 4096)
    }

    /// Signs a certificate that ends with a year.
    pub fn sign_until(&self, host: &str, year: i32) -> Certificate {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a host");
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("there is randomness");
        let chain = params.signed_by(&key, &self.issuer).expect("it can be signed").pem();
        Certificate { chain, key: key.serialize_pem() }
    }
}

impl Certificate {
    /// Returns a certificate for `localhost` that is its own authority.
    pub fn new() -> Certificate {
        let own = generate_simple_self_signed(["localhost".to_owned()]).expect("it can be made");
        Certificate { chain: own.cert.pem(), key: own.signing_key.serialize_pem() }
    }

    /// Writes `chain.pem` and `key.pem`, and returns their paths.
    pub fn write(&self, folder: &Folder) -> (String, String) {
        (folder.write("chain.pem", &self.chain), folder.write("key.pem", &self.key))
    }

    /// Writes both files, and returns the options of a proxy with them.
    pub fn options(&self, folder: &Folder) -> String {
        let (chain, key) = self.write(folder);
        format!("--tls-cert {chain} --tls-key {key}")
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).expect("it was written here")
    }

    /// Returns the certificate and its key.
    pub fn der_with_key(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (self.der(), PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("it was written here"))
    }

    /// Returns the server's side of TLS, which takes one of these protocols.
    pub fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let (chain, key) = self.der_with_key();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("the provider has them");
        let config = config.with_no_client_auth().with_single_cert(vec![chain], key);
        let mut config = config.expect("they belong together");
        config.alpn_protocols = as_bytes(protocols);
        Arc::new(config)
    }

    /// Connects with HTTP/1.1 over TLS. An error is a proxy with another certificate.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Connection<TlsStream>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut session =
            ClientConnection::new(trust(&[self.der()], &["http/1.1"]), localhost()).expect("valid");
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Connection::over(StreamOwned::new(session, stream)))
    }

    /// Connects over TLS. Returns the protocol on which both sides agreed, and the client.
    pub fn connect_http2(&self, address: SocketAddr) -> (Option<Vec<u8>>, Http2) {
        let stream = block_on(open_any(&[self.der()], address));
        let stream = stream.expect("the proxy has this certificate");
        (stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec), Http2::over(stream, "https"))
    }
}

/// Opens TLS as a client that trusts these certificates alone, and prefers HTTP/2.
pub async fn open_any(
    trusted: &[CertificateDer<'static>],
    address: SocketAddr,
) -> io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let connector = TlsConnector::from(trust(trusted, &["h2", "http/1.1"]));
    let stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    connector.connect(localhost(), stream).await
}

/// Returns a client's side of TLS that trusts these certificates alone.
fn trust(trusted: &[CertificateDer<'static>], protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate.clone()).expect("a certificate");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("the provider has them");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = as_bytes(protocols);
    Arc::new(config)
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

fn as_bytes(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect()
}

/// Writes a certificate to two files of a folder.
pub fn certificate(folder: &Folder, name: &str) -> (Files, CertificateDer<'static>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a test's certificate");
    let files =
        Files { chain: folder.path(&format!("{name}.pem")), key: folder.path(&format!("{name}.key")) };
    fs::write(&files.chain, cert.pem()).expect("a test's certificate");
    fs::write(&files.key, signing_key.serialize_pem()).expect("a test's certificate");
    (files, cert.der().clone())
}
