//! TLS, and the change of a certificate.

use std::fs;

use crate::support::{Certificate, Folder, GET, OK, Proxy, Upstream, tollgate};

#[test]
fn alpn_selects_the_version_of_http() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let upstream = Upstream::answering(OK);
    let options = certificate.options(&folder);
    let proxy = Proxy::over(&upstream.url(), &format!("--limit 3/h {options}"));
    let mut client = certificate.connect(proxy.address).expect("the proxy has this certificate");
    assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(client.get("/").status, 200);
    let (protocol, http2) = certificate.connect_http2(proxy.address);
    assert_eq!(protocol.as_deref(), Some(&b"h2"[..]));
    assert_eq!(http2.get("/").status, 200);
    for _ in 0..2 {
        let request = upstream.next();
        assert_eq!(request.all("x-forwarded-proto"), ["https"]);
        assert_eq!(request.all("x-forwarded-port"), [proxy.address.port().to_string()]);
        assert_eq!(request.all("forwarded"), ["for=127.0.0.1;proto=https;host=\"a.example\""]);
    }
    // All these connections are of one client.
    assert_eq!([0; 2].map(|_| http2.get("/").status), [200, 429]);
    assert_eq!(client.get("/").status, 429);

    // Without TLS, the listener speaks no HTTP.
    proxy.connect().write(GET);
    proxy.await_count("tls_handshake_errors", 1);
    assert!(Certificate::new().connect(proxy.address).is_err(), "a client that trusts another one");
}

#[test]
fn a_hangup_changes_the_certificate_of_new_connections() {
    let (folder, first, second) = (Folder::new(), Certificate::new(), Certificate::new());
    let (chain, key) = first.write(&folder);
    // The proxy has no file of settings, so it reads only the certificate again.
    let proxy = Proxy::start(&format!("--limit none {}", first.options(&folder)));
    let mut old = first.connect(proxy.address).expect("the proxy has the first one");
    let (_, old_http2) = first.connect_http2(proxy.address);
    assert_eq!(old.get("/").status, 200);

    second.write(&folder);
    proxy.reload();
    assert!(first.connect(proxy.address).is_err());
    let mut new = second.connect(proxy.address).expect("the proxy has the second one");
    assert_eq!(new.get("/").status, 200);
    // Open connections go on.
    assert_eq!(old.get("/").status, 200);
    assert_eq!(old_http2.get("/").status, 200);

    let whole = fs::read_to_string(&chain).expect("it is there");
    let other_key = Folder::new();
    let (_, other_key) = first.write(&other_key);
    let other_key = fs::read_to_string(other_key).expect("it is there");
    for (number, (file, text)) in
        [(&chain, &whole[..whole.len() / 2]), (&chain, ""), (&key, &*other_key), (&key, "")]
            .iter()
            .enumerate()
    {
        second.write(&folder);
        fs::write(file, text).expect("it can be written");
        proxy.signal("-HUP");
        let error = proxy.error();
        assert!(error.contains(*file) && error.ends_with("; all settings stay as they were"), "{error}");
        let mut still = second.connect(proxy.address).expect("the proxy keeps the second one");
        assert_eq!(still.get("/").status, 200);
        proxy.await_count("reload_errors", number as u64 + 1);
    }
}

#[test]
fn a_bad_certificate_is_one_sentence_that_names_it() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let (chain, key) = certificate.write(&folder);
    let (broken, missing) = (folder.write("broken.pem", "-----BEGIN"), folder.text("missing.pem"));
    let config = folder.write("tls.toml", "[tls]\ncert = \"broken.pem\"\nkey = \"key.pem\"\n");
    for (line, named) in [
        (format!("--tls-cert {broken} --tls-key {key}"), &broken),
        (format!("--tls-cert {missing} --tls-key {key}"), &missing),
        (format!("check --tls-cert {chain} --tls-key {broken}"), &broken),
        (format!("check --tls-cert {chain} --tls-key {missing}"), &missing),
        // The path is relative to the file.
        (format!("check --demo --config {config}"), &broken),
    ] {
        tollgate(&line).assert_mistake("", named);
    }
}
