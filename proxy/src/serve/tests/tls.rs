//! Connections of TLS.

use tollgate_common::net::tls::Certificate;

use super::*;

type Client<T> = client::TlsStream<T>;

/// Shakes hands as a client that trusts one certificate.
async fn shake<T: Io>(
    io: T,
    trusted: &CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &str,
) -> io::Result<Client<T>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), io).await
}

async fn shake_any<T: Io>(io: T, trusted: &CertificateDer<'static>) -> io::Result<Client<T>> {
    shake(io, trusted, rustls::ALL_VERSIONS, "h2").await
}

/// Opens a connection of TLS within this process.
pub(super) async fn tls_pair(
    door: &Door,
    trusted: &CertificateDer<'static>,
) -> (Client<DuplexStream>, Stream) {
    let (client, server) = duplex(4_096);
    let (client, server) = tokio::join!(shake_any(client, trusted), open(of_load_balancer(server), door));
    (client.unwrap(), server.unwrap().0)
}

pub(super) async fn ping(server: &mut Stream, client: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    client.write_all(b"?").await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'?');
    server.write_all(b"!").await.unwrap();
    server.flush().await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'!');
}

#[tokio::test]
async fn tls_of_both_versions_and_both_protocols_is_opened() {
    let folder = Folder::new();
    let (files, trusted) = certificate(&folder, "own");
    let door = door(Settings::default(), Some(&Arc::new(Tls::read(&files).unwrap())));
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for alpn in ["h2", "http/1.1"] {
            let client = TcpStream::connect(listener.address().to_string()).await.unwrap();
            let socket = listener.accept(Duration::from_secs(3_600)).await;
            let versions = [version];
            let shaking = shake(client, &trusted, &versions, alpn);
            let (client, server) = tokio::join!(shaking, open(socket, &door));
            let (mut client, (mut server, peer)) = (client.unwrap(), server.unwrap());
            assert_eq!(client.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
            assert_eq!(client.get_ref().1.protocol_version(), Some(version.version));
            let address = ip("127.0.0.1");
            assert_eq!(peer, Peer { address, connected: address, is_tls: true });
            ping(&mut server, &mut client).await;
        }
    }
    assert_eq!(door.counters.count(Event::TlsHandshake), 0);
}

/// The header and the handshake are there before the first read.
#[tokio::test]
async fn a_header_and_a_handshake_may_come_in_one_part() {
    let folder = Folder::new();
    let (files, trusted) = certificate(&folder, "own");
    let tls = Arc::new(Tls::read(&files).unwrap());
    for (header, address) in headers() {
        let door = door(behind_load_balancer(), Some(&tls));
        let (mut client, server) = duplex(4_096);
        client.write_all(&header).await.unwrap();
        let (client, server) =
            tokio::join!(shake_any(client, &trusted), open(of_load_balancer(server), &door));
        let (mut client, (mut server, peer)) = (client.unwrap(), server.unwrap());
        assert_eq!(peer, Peer { address: ip(address), connected: ip(LOAD_BALANCER), is_tls: true });
        ping(&mut server, &mut client).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_not_tls_is_counted_and_closed() {
    let folder = Folder::new();
    let (files, trusted) = certificate(&folder, "own");
    let tls = Arc::new(Tls::read(&files).unwrap());
    let door = door(Settings::default(), Some(&tls));
    assert!(open(sends(REQUEST, b""), &door).await.is_none());
    assert_eq!(door.counters.count(Event::TlsHandshake), 1);
    assert!(open(sends(b"", b""), &door).await.is_none());
    assert_eq!(door.counters.count(Event::TlsHandshake), 2);

    // The two sides have no protocol in common.
    let (client, server) = duplex(4_096);
    let shaking = shake(client, &trusted, rustls::ALL_VERSIONS, "h3");
    let (client, server) = tokio::join!(shaking, open(of_load_balancer(server), &door));
    assert!(client.is_err() && server.is_none());
    assert_eq!(door.counters.count(Event::TlsHandshake), 3);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_not_finished_in_time_is_counted_and_closed() {
    let folder = Folder::new();
    let (files, _) = certificate(&folder, "own");
    let tls = Arc::new(Tls::read(&files).unwrap());
    let door = door(Settings::default(), Some(&tls));
    let start = Instant::now();
    let (mut client, server) = duplex(64);
    client.write_all(&[22, 3, 1]).await.unwrap();
    assert!(open(of_load_balancer(server), &door).await.is_none());
    assert_time(start.elapsed(), door.settings.timeouts.request_head);
    assert_eq!(door.counters.count(Event::TlsHandshake), 1);
    drop(client);
}

#[tokio::test]
async fn a_certificate_is_replaced_under_a_live_connection() {
    let folder = Folder::new();
    let (files, old) = certificate(&folder, "own");
    let tls = Arc::new(Tls::read(&files).unwrap());
    let door = door(Settings::default(), Some(&tls));
    let (mut before, mut before_server) = tls_pair(&door, &old).await;

    let (next, new) = certificate(&folder, "next");
    tls.replace(Tls::read(&next).unwrap());
    ping(&mut before_server, &mut before).await;
    let (mut after, mut after_server) = tls_pair(&door, &new).await;
    ping(&mut after_server, &mut after).await;
    assert_eq!(after.get_ref().1.peer_certificates(), Some(&[new.clone()][..]));

    // Files that cannot be used change nothing.
    fs::write(&files.chain, "").unwrap();
    assert_eq!(Tls::read(&files).err(), Some(format!("no certificate in {}", files.chain.display())));
    tls_pair(&door, &new).await;
    ping(&mut before_server, &mut before).await;
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_fault() {
    let folder = Folder::new();
    let (own, _) = certificate(&folder, "own");
    let (other, _) = certificate(&folder, "other");
    let file = |name: &str, content: &str| {
        let path = folder.path(name);
        fs::write(&path, content).unwrap();
        path
    };
    let fault = |chain: &Path, key: &Path| {
        let files = Certificate { chain: chain.to_owned(), key: key.to_owned() };
        let error = Tls::read(&files).err().expect("the files cannot be used");
        error.replace(&folder.text(""), "")
    };
    let pem = fs::read_to_string(&own.chain).unwrap();
    let none = folder.path("none");
    let empty = file("empty", "");
    let cut = file("cut", &pem[..pem.len() / 2]);
    let broken = file("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let broken_key = file("broken_key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let not_base64 = file("not_base64", "-----BEGIN PRIVATE KEY-----\n?\n-----END PRIVATE KEY-----\n");

    let no_file = "No such file or directory (os error 2)";
    assert_eq!(fault(&none, &own.key), format!("cannot read the certificate in none: {no_file}"));
    assert_eq!(fault(&own.chain, &none), format!("cannot read the private key in none: {no_file}"));
    assert_eq!(fault(&empty, &own.key), "no certificate in empty");
    assert_eq!(fault(&own.key, &own.key), "no certificate in own.key");
    assert_eq!(fault(&own.chain, &empty), "no unencrypted private key in empty");
    assert_eq!(fault(&own.chain, &own.chain), "no unencrypted private key in own.pem");
    let mismatch = "the private key in other.key is not the one of the certificate in own.pem";
    assert_eq!(fault(&own.chain, &other.key), mismatch);
    for (chain, key, begin) in [
        (&cut, &own.key, "the certificate in cut is malformed: "),
        (&broken, &own.key, "the certificate in broken is malformed: "),
        (&own.chain, &not_base64, "the private key in not_base64 is malformed: "),
        (&own.chain, &broken_key, "cannot use the private key in broken_key: "),
    ] {
        let fault = fault(chain, key);
        assert!(fault.starts_with(begin) && !fault.contains('\n'), "{fault}");
    }
}

#[tokio::test]
async fn a_chain_of_two_certificates_is_sent_whole() {
    let folder = Folder::new();
    let (own, first) = certificate(&folder, "own");
    let (other, second) = certificate(&folder, "other");
    let text = fs::read_to_string(&own.chain).unwrap() + &fs::read_to_string(&other.chain).unwrap();
    fs::write(&own.chain, text).unwrap();
    let door = door(Settings::default(), Some(&Arc::new(Tls::read(&own).unwrap())));
    let (client, _server) = tls_pair(&door, &first).await;
    assert_eq!(client.get_ref().1.peer_certificates(), Some(&[first, second][..]));
}
