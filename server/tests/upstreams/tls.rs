//! Upstreams over TLS, and the check of their certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;
use super::process::{Proxy, recording_upstream, tollgate};
use super::support::{Folder, block_on, spawn};
use super::upstream::{Upstream, ask, client, get};
use super::{NO_LIMIT, PATIENCE};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown";

/// Starts a server of TLS in front of an upstream.
fn relay(tls: Arc<ServerConfig>, to: SocketAddr) -> SocketAddr {
    let listener = block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let tls = TlsAcceptor::from(tls.clone());
            spawn(async move {
                // The proxy may not trust it.
                let Ok(mut stream) = tls.accept(stream).await else { return };
                let mut to = TcpStream::connect(to).await.expect("the upstream listens");
                let _ = copy_bidirectional(&mut stream, &mut to).await;
            });
        }
    });
    address
}

fn proxy(host: &str, port: u16, ca: &str) -> Proxy {
    let url = format!("https://{host}:{port}");
    Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url, "--upstream-ca", ca])
}

#[test]
fn an_upstream_of_a_private_authority_chooses_its_version_of_http() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.write(&folder);
    for host in ["localhost", "127.0.0.1"] {
        let identity = authority.sign(host);
        for protocols in [&["http/1.1"][..], &[]] {
            let (http1, requests) = recording_upstream(OK);
            let address = relay(identity.server(protocols), http1);
            let proxy = proxy(host, address.port(), &ca);
            let mut client = proxy.connect();
            for path in ["/a", "/b"] {
                assert_eq!(client.get(path).body, "own");
                let request = requests.recv_timeout(PATIENCE).expect("it is asked");
                assert_eq!(request.start, format!("GET {path} HTTP/1.1"));
                assert_eq!(request.header("host"), Some(&*format!("{host}:{}", address.port())));
            }
        }
        let mut upstream = Upstream::start_with(Some(identity.server(&["h2", "http/1.1"])), 1_000);
        let proxy = proxy(host, upstream.address.port(), &ca);
        block_on(async {
            let client = client(proxy.address).await;
            for _ in 0..2 {
                let answer = async {
                    let mut asked = upstream.asked().await;
                    asked.answer("own");
                    (asked.connection, asked.request.uri().scheme_str() == Some("https"))
                };
                let (response, asked) = tokio::join!(ask(&client, get("/")), answer);
                assert_eq!((response.expect("no reset").1.as_str(), asked), ("own", (0, true)));
            }
        });
    }
}

#[test]
fn a_certificate_that_does_not_fit_is_a_bad_gateway() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.write(&folder);
    for (identity, why) in [
        (Authority::new().sign("localhost"), "UnknownIssuer; upstream_ca names a file"),
        (authority.sign("other.example"), "not valid for name"),
        (authority.sign("127.0.0.1"), "not valid for name"),
        (authority.sign_until("localhost", 2020), "certificate expired"),
    ] {
        let (http1, requests) = recording_upstream(OK);
        let address = relay(identity.server(&["http/1.1"]), http1);
        let proxy = proxy("localhost", address.port(), &ca);
        let mut client = proxy.connect();
        for _ in 0..3 {
            let response = client.get("/");
            assert_eq!(response.status, 502);
            assert_eq!(response.body, "Bad gateway: the upstream cannot be reached.\n");
        }
        let lines = proxy.last_words();
        let fitting = |line: &&String| line.contains("the upstream is down") && line.contains(why);
        assert_eq!((lines.iter().filter(fitting).count(), lines.len()), (1, 1), "{why}: {lines:?}");
        assert!(requests.try_recv().is_err());
    }
}

/// The upstream prefers HTTP/2, and gets HTTP/1.1 for the connection that is upgraded.
#[test]
fn a_websocket_has_a_connection_of_its_own() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let accept = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let (http1, requests) = recording_upstream(accept);
    let address = relay(authority.sign("localhost").server(&["h2", "http/1.1"]), http1);
    let proxy = proxy("localhost", address.port(), &authority.write(&folder));
    let mut client = proxy.connect();
    client.write(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let head = super::process::Message::read_head(&mut client.0).expect("a response");
    assert_eq!((head.status, head.header("upgrade")), (101, Some("websocket")));
    assert_eq!(requests.recv_timeout(PATIENCE).expect("it is asked").start, "GET /chat HTTP/1.1");
}

#[test]
fn a_hangup_reads_the_authorities_anew() {
    let (right, wrong) = (Authority::new(), Authority::new());
    for with_file in [true, false] {
        let folder = Folder::new();
        let ca = wrong.write(&folder);
        let (http1, _requests) = recording_upstream(OK);
        let url = format!("https://localhost:{}", relay(right.sign("localhost").server(&[]), http1).port());
        // The path is relative to the file.
        let config = folder.write("proxy.toml", &format!("upstream = \"{url}\"\nupstream_ca = \"ca.pem\"\n"));
        let options = if with_file {
            vec!["--config", &config]
        } else {
            vec!["--upstream", &url, "--upstream-ca", &ca]
        };
        let proxy = Proxy::start(&options);
        assert_eq!(proxy.connect().get("/").status, 502);
        right.write(&folder);
        if with_file {
            proxy.reload();
        } else {
            proxy.signal("-HUP");
            proxy.line_with("read again");
        }
        // The upstream was down, and is asked all the same: there is no other.
        assert_eq!(proxy.connect().get("/").status, 200);
    }
}

#[test]
fn a_file_of_authorities_that_is_none_is_named_with_its_place() {
    let folder = Folder::new();
    let config = folder.write("proxy.toml", "upstream = \"https://a.example\"\nupstream_ca = \"ca.pem\"\n");
    let ca = folder.path("ca.pem");
    for (text, why) in [
        (None, format!("cannot read the certificate in {ca}: No such file")),
        (Some(""), format!("no certificate in {ca}")),
        (Some("-----BEGIN CERTIFICATE-----\nAAAA\n"), format!("the certificate in {ca} is malformed")),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            format!("the certificate in {ca} is malformed"),
        ),
    ] {
        text.map(|text| folder.write("ca.pem", text));
        let output = tollgate(&["check", "--config", &config]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let begin = format!("error: {config}:2:15: {why}");
        assert!(stderr.starts_with(&begin) && stderr.lines().count() == 1, "{stderr}, not {begin}");
    }
    Authority::new().write(&folder);
    let output = tollgate(&["check", "--config", &config]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|line| line.starts_with("upstream_ca ") && line.contains(&ca)), "{text}");
}
