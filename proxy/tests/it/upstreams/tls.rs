//! Upstreams over TLS, and the check of their certificates.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{
    Authority, Folder, Http2, Http2Upstream, Message, OK, Proxy, SWITCHING, UPGRADE, Upstream, block_on,
    check_text, get, spawn,
};

/// Starts a server of TLS in front of an upstream, and returns its port.
fn relay(tls: Arc<ServerConfig>, to: &Upstream<Message>) -> u16 {
    let listener = block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let port = listener.local_addr().expect("it has an address").port();
    let to = to.address;
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
    port
}

fn proxy(host: &str, port: u16, ca: &str) -> Proxy {
    Proxy::over(&format!("https://{host}:{port}"), &format!("--upstream-ca {ca}"))
}

#[test]
fn an_upstream_of_a_private_authority_chooses_its_version_of_http() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.write(&folder);
    for host in ["localhost", "127.0.0.1"] {
        let identity = authority.sign(host);
        for protocols in [&["http/1.1"][..], &[]] {
            let http1 = Upstream::answering(OK);
            let port = relay(identity.server(protocols), &http1);
            let proxy = proxy(host, port, &ca);
            let mut client = proxy.connect();
            for path in ["/a", "/b"] {
                assert_eq!(client.get(path).body, "ok");
                let request = http1.next();
                assert_eq!(request.start, format!("GET {path} HTTP/1.1"));
                assert_eq!(request.header("host"), Some(&*format!("{host}:{port}")));
            }
        }
        let mut upstream = Http2Upstream::start_with(Some(identity.server(&["h2", "http/1.1"])), 1_000);
        let proxy = proxy(host, upstream.address.port(), &ca);
        let client = Http2::connect(proxy.address);
        block_on(async {
            for _ in 0..2 {
                let answer = async {
                    let mut asked = upstream.asked().await;
                    asked.answer("own");
                    (asked.connection, asked.request.uri().scheme_str() == Some("https"))
                };
                let (response, asked) = tokio::join!(client.ask(get("/")), answer);
                assert_eq!((&*response.expect("no reset").body, asked), ("own", (0, true)));
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
        let http1 = Upstream::answering(OK);
        let proxy = proxy("localhost", relay(identity.server(&["http/1.1"]), &http1), &ca);
        let mut client = proxy.connect();
        for _ in 0..3 {
            let response = client.get("/");
            assert_eq!(response.status, 502);
            assert_eq!(response.body, "Bad gateway: the upstream cannot be reached.\n");
        }
        let lines = proxy.last_words();
        let fitting = |line: &&String| line.contains("the upstream is down") && line.contains(why);
        assert_eq!((lines.iter().filter(fitting).count(), lines.len()), (1, 1), "{why}: {lines:?}");
        assert!(http1.try_next().is_none());
    }
}

/// The upstream prefers HTTP/2, and gets HTTP/1.1 for the connection that is upgraded.
#[test]
fn a_websocket_has_a_connection_of_its_own() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let http1 = Upstream::answering(SWITCHING);
    let port = relay(authority.sign("localhost").server(&["h2", "http/1.1"]), &http1);
    let proxy = proxy("localhost", port, &authority.write(&folder));
    let head = proxy.connect().ask(UPGRADE);
    assert_eq!((head.status, head.header("upgrade")), (101, Some("websocket")));
    assert_eq!(http1.next().start, "GET /chat HTTP/1.1");
}

#[test]
fn a_hangup_reads_the_authorities_anew() {
    let (right, wrong) = (Authority::new(), Authority::new());
    let http1 = Upstream::answering(OK);
    let port = relay(right.sign("localhost").server(&[]), &http1);
    let url = format!("https://localhost:{port}");
    for with_file in [true, false] {
        let folder = Folder::new();
        let ca = wrong.write(&folder);
        // The path is relative to the file.
        let text = format!("upstream = \"{url}\"\nupstream_ca = \"ca.pem\"\n");
        let config = folder.write("proxy.toml", text);
        let proxy = if with_file {
            Proxy::start(&format!("--config {config}"))
        } else {
            proxy("localhost", port, &ca)
        };
        assert_eq!(proxy.get("/").status, 502);
        right.write(&folder);
        proxy.reload();
        // The upstream was down, and is asked all the same: there is no other.
        assert_eq!(proxy.get("/").status, 200);
    }
}

#[test]
fn a_file_of_authorities_that_is_none_is_named_with_its_place() {
    let folder = Folder::new();
    let text = "upstream = \"https://a.example\"\nupstream_ca = \"ca.pem\"\n";
    let (config, ca) = (folder.text("tollgate.toml"), folder.text("ca.pem"));
    for (pem, why) in [
        (None, format!("cannot read the certificate in {ca}: No such file")),
        (Some(""), format!("no certificate in {ca}")),
        (Some("-----BEGIN CERTIFICATE-----\nAAAA\n"), format!("the certificate in {ca} is malformed")),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            format!("the certificate in {ca} is malformed"),
        ),
    ] {
        pem.map(|pem| folder.write("ca.pem", pem));
        check_text(&folder, text, "").assert_mistake(&format!("{config}:2:15: {why}"), "");
    }
    Authority::new().write(&folder);
    let text = check_text(&folder, text, "").text();
    assert!(text.lines().any(|line| line.starts_with("upstream_ca ") && line.contains(&ca)), "{text}");
}
