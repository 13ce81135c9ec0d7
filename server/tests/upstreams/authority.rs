//! Certificates of a private authority.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::support::Folder;

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, both as PEM.
pub(super) struct Identity {
    chain: String,
    key: String,
}

impl Authority {
    pub(super) fn new() -> Authority {
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
    pub(super) fn write(&self, folder: &Folder) -> String {
        folder.write("ca.pem", &self.pem)
    }

    /// Signs a certificate for a host.
    pub(super) fn sign(&self, host: &str) -> Identity {
        self.sign_until(host, 4096)
    }

    /// Signs a certificate that ends with a year.
    pub(super) fn sign_until(&self, host: &str, year: i32) -> Identity {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a host");
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("there is randomness");
        let chain = params.signed_by(&key, &self.issuer).expect("it can be signed").pem();
        Identity { chain, key: key.serialize_pem() }
    }
}

impl Identity {
    pub(super) fn write(&self, folder: &Folder) -> (String, String) {
        (folder.write("chain.pem", &self.chain), folder.write("key.pem", &self.key))
    }

    /// Returns the server's side of TLS, which takes one of these protocols.
    pub(super) fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let chain = CertificateDer::from_pem_slice(self.chain.as_bytes()).expect("it was written here");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("it was written here");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("the provider has them").with_no_client_auth();
        let mut config = config.with_single_cert(vec![chain], key).expect("they belong together");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
