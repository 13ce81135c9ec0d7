//! Clients with certificates.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::tls::ping;
use super::*;
use tollgate_common::net::tls::Clients;

/// The name of a service in Istio, which has no other.
const ENVOY: &str = "spiffe://cluster.local/ns/edge/sa/envoy";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns the certificate of a client with its key: one that is valid, or that ended long ago.
fn client_of(
    authority: &Authority,
    name: &str,
    is_valid: bool,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = match name.contains("://") {
        true => vec![SanType::URI(name.try_into().unwrap())],
        false => CertificateParams::new([name.to_owned()]).unwrap().subject_alt_names,
    };
    if !is_valid {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

/// Opens a connection of a client with a certificate or without, and sends a byte each way. Returns
/// whether the server opened it.
async fn is_opened(
    door: &Door,
    trusted: &CertificateDer<'static>,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match own {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let (client, server) = duplex(4_096);
    let connector = TlsConnector::from(Arc::new(config));
    let connecting = connector.connect(ServerName::try_from("localhost").unwrap(), client);
    // In TLS 1.3 a client is done before the server has looked at its certificate.
    let (client, server) = tokio::join!(connecting, open(of_load_balancer(server), door));
    let Some((mut server, _)) = server else { return false };
    ping(&mut server, &mut client.unwrap()).await;
    true
}

#[tokio::test]
async fn a_client_needs_a_certificate_of_the_authority_and_one_of_the_names() {
    let folder = Folder::new();
    let (files, trusted) = certificate(&folder, "own");
    let (ours, other) = (authority(), authority());
    let path = folder.path("authority.pem");
    fs::write(&path, ours.pem()).unwrap();
    let clients = |names: &[&str]| Clients {
        authority: path.clone(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    for (names, client, is_let_in) in [
        (&[][..], Some((&ours, "envoy.local", true)), true),
        (&["envoy.local"], Some((&ours, "envoy.local", true)), true),
        (&["a.local", "envoy.local"], Some((&ours, "envoy.local", true)), true),
        (&["10.0.0.1"], Some((&ours, "10.0.0.1", true)), true),
        (&["envoy.local"], Some((&ours, "other.local", true)), false),
        (&["envoy.local"], Some((&ours, "envoy.local", false)), false),
        (&[ENVOY], Some((&ours, ENVOY, true)), true),
        (&["a.local", ENVOY], Some((&ours, ENVOY, true)), true),
        (&[ENVOY], Some((&ours, "spiffe://cluster.local/ns/edge/sa/envoy2", true)), false),
        (&[ENVOY], Some((&ours, "cluster.local", true)), false),
        (&["cluster.local"], Some((&ours, ENVOY, true)), false),
        (&[ENVOY], Some((&other, ENVOY, true)), false),
        (&[], Some((&other, "envoy.local", true)), false),
        (&[], None, false),
    ] {
        let tls = Arc::new(Tls::read_for(&files, Some(&clients(names))).unwrap());
        let door = door(Settings::default(), Some(&tls));
        let own = client.map(|(authority, name, is_valid)| client_of(authority, name, is_valid));
        let client = client.map(|(_, name, is_valid)| (name, is_valid));
        assert_eq!(is_opened(&door, &trusted, own).await, is_let_in, "{client:?} among {names:?}");
        assert_eq!(door.counters.count(Event::TlsHandshake), u64::from(!is_let_in));
    }
    for name in ["a b", "://a", "spiffe://", ""] {
        let error = Tls::read_for(&files, Some(&clients(&[name]))).err().unwrap();
        assert_eq!(error, format!("{name:?} is no name of a certificate"));
    }
    fs::write(&path, "").unwrap();
    let error = Tls::read_for(&files, Some(&clients(&[]))).err().unwrap();
    assert_eq!(error, format!("no certificate in {}", path.display()));
}
