//! The headers that the upstream gets.

use super::*;

/// Returns the headers of lines like `name: value`.
fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a name and a value");
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    headers
}

/// Returns the lines of headers, sorted by name.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut lines: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    lines.sort_by_key(|(name, _)| *name);
    lines.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn shop() -> Authority {
    Authority::from_static("shop.example:81")
}

static PORT: HeaderValue = HeaderValue::from_static("8080");
static HTTPS: HeaderValue = HeaderValue::from_static("443");

fn hop(host: &Authority, trusted: bool) -> Hop<'_> {
    let (peer, client) = (ip("192.0.2.1"), ip("198.51.100.7"));
    Hop { peer, client, trusted, is_tls: false, host: Some(host), port: &PORT }
}

/// Returns the lines that the upstream gets.
fn passed_on(lines_in: &[&str], hop: &Hop<'_>) -> Vec<String> {
    let mut headers = headers(lines_in);
    drop_hop_by_hop(&mut headers);
    set(&mut headers, hop);
    lines(&headers)
}

/// The lines that the upstream gets if the client sends none of them.
const OURS: [&str; 6] = [
    "forwarded: for=192.0.2.1;proto=http;host=\"shop.example:81\"",
    "x-forwarded-for: 192.0.2.1",
    "x-forwarded-host: shop.example:81",
    "x-forwarded-port: 8080",
    "x-forwarded-proto: http",
    "x-real-ip: 192.0.2.1",
];

#[test]
fn a_peer_that_is_not_trusted_claims_nothing() {
    let hostile: [&[&str]; 29] = [
        &[],
        &["X-Forwarded-For: 10.0.0.1"],
        &["X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 10.0.0.2, 10.0.0.3"],
        &["X-Forwarded-For: "],
        &["X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example", "X-Forwarded-Port: 443"],
        &["X-Forwarded-Proto: https", "X-Forwarded-Proto: https"],
        &["X-Forwarded-Server: a", "X-Forwarded-Prefix: /admin", "X-Forwarded-Ssl: on"],
        &["X-Forwarded-Scheme: https", "X-Forwarded-By: a", "X-Forwarded-: a", "X-Forwarded-A-B: c"],
        &["Forwarded: for=10.0.0.1;proto=https"],
        &["Forwarded: for=10.0.0.1", "forwarded: for=\"", "FORWARDED: host=evil.example"],
        &["X-Real-IP: 10.0.0.1"],
        &["X-Real-IP: 10.0.0.1", "x-real-ip: 10.0.0.2"],
        &["CF-Connecting-IP: 10.0.0.1", "CF-Connecting-IPv6: ::1", "True-Client-IP: 10.0.0.1"],
        &["Client-IP: 10.0.0.1", "X-Client-IP: 10.0.0.1", "X-Cluster-Client-IP: 10.0.0.1"],
        &["Fastly-Client-IP: 10.0.0.1", "Fly-Client-IP: 10.0.0.1", "X-Azure-ClientIP: 10.0.0.1"],
        &["X-Original-URL: /admin", "X-Rewrite-URL: /admin", "X-Original-Host: evil.example"],
        &["CF_Connecting_IP: 10.0.0.1", "Client_IP: 10.0.0.1", "X_Original_URL: /admin"],
        &["X_Forwarded_For: 10.0.0.1", "X_Forwarded-For: 10.0.0.1", "X-Forwarded_For: 10.0.0.1"],
        &["X_FORWARDED_PROTO: https", "x_forwarded_host: evil.example", "x_forwarded_anything: 1"],
        &["X_Real_IP: 10.0.0.1", "X-Real_IP: 10.0.0.1", "X_Real-IP: 10.0.0.1"],
        &["X.Forwarded.For: 10.0.0.1", "X!Forwarded~For: 10.0.0.1", "X.Real.IP: 10.0.0.1"],
        &["X-Forwarded-For: 10.0.0.1", "Connection: X-Forwarded-For"],
        &["Connection: X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Port"],
        &["Connection: Forwarded", "Connection: x-real-ip", "Connection: close, X-Forwarded-For"],
        &["Connection: X_Forwarded_For", "X_Forwarded_For: 10.0.0.1"],
        &["Connection: \u{e9}, X-Forwarded-For", "X-Forwarded-For: \u{e9}"],
        &["Connection: keep-alive, connection, te, upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"],
        &["Proxy-Connection: X-Forwarded-For", "Keep-Alive: X-Forwarded-For", "Trailer: X-Forwarded-For"],
        &["TE: gzip", "Transfer-Encoding: chunked", "Content-Length: 5", "Proxy-Authorization: Basic eA=="],
    ];
    for lines in hostile {
        assert_eq!(passed_on(lines, &hop(&shop(), false)), OURS, "{lines:?}");
    }
}

#[test]
fn a_trusted_peer_is_believed() {
    let kept = [
        "Forwarded: for=198.51.100.7;proto=https, for=10.0.0.9",
        "Forwarded: for=10.0.0.1",
        "X-Forwarded-For: 198.51.100.7, 10.0.0.9",
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-Host: other.example",
        "X-Forwarded-Port: 443",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Prefix: /shop",
        "X-Real-IP: 203.0.113.3",
        "X-End: 1",
    ];
    let expected = [
        "forwarded: for=198.51.100.7;proto=https, for=10.0.0.9",
        "forwarded: for=10.0.0.1",
        "forwarded: for=192.0.2.1;proto=http;host=\"shop.example:81\"",
        "x-end: 1",
        "x-forwarded-for: 198.51.100.7, 10.0.0.9, 10.0.0.1, 192.0.2.1",
        "x-forwarded-host: other.example",
        "x-forwarded-port: 443",
        "x-forwarded-prefix: /shop",
        "x-forwarded-proto: https",
        // The limited address, and not the word of a client that the peer has let through.
        "x-real-ip: 198.51.100.7",
    ];
    assert_eq!(passed_on(&kept, &hop(&shop(), true)), expected);
}

#[test]
fn a_trusted_peer_sends_a_header_once_or_it_is_set() {
    let mut expected = OURS;
    expected[5] = "x-real-ip: 198.51.100.7";
    let unusable: [&[&str]; 6] = [
        &[],
        &["X-Forwarded-For: ", "X-Forwarded-Proto: ", "X-Forwarded-Host: ", "X-Real-IP: "],
        &["X-Forwarded-Proto: https", "X-Forwarded-Proto: https"],
        &["X-Forwarded-Host: a", "X-Forwarded-Host: b", "X-Forwarded-Port: 1", "X-Forwarded-Port: 2"],
        &["X-Real-IP: 10.0.0.1", "X-Real-IP: 10.0.0.2"],
        // Names that a trusted proxy has let through.
        &["X_Forwarded_For: 10.0.0.1", "X-Forwarded_Proto: https", "X_Real_IP: 10.0.0.1", "X.Real.IP: a"],
    ];
    for lines in unusable {
        assert_eq!(passed_on(lines, &hop(&shop(), true)), expected, "{lines:?}");
    }
    let shop = shop();
    let without_host = Hop { host: None, ..hop(&shop, true) };
    let passed_on_without = passed_on(&["X-Forwarded-Host: a", "X-Forwarded-Host: b"], &without_host);
    assert_eq!(passed_on_without[0], "forwarded: for=192.0.2.1;proto=http");
    assert_eq!(passed_on_without[1..], [expected[1], expected[3], expected[4], expected[5]]);
    // A header that a client behind the peer had named in `Connection` stays (CVE-2022-31813).
    let named = ["Connection: X-Forwarded-For, Forwarded", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=a"];
    let passed_on = passed_on(&named, &hop(&shop, true));
    assert!(passed_on.contains(&"x-forwarded-for: 10.0.0.1, 192.0.2.1".to_owned()), "{passed_on:?}");
    assert_eq!(passed_on[0], "forwarded: for=a");
}

#[test]
fn addresses_hosts_and_schemes_are_written() {
    for (peer, node, text) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "\"[2001:db8::1]\"", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1"),
    ] {
        let hop = Hop { peer: ip(peer), is_tls: true, host: None, port: &HTTPS, ..hop(&shop(), false) };
        let expected = [
            format!("forwarded: for={node};proto=https"),
            format!("x-forwarded-for: {text}"),
            "x-forwarded-port: 443".to_owned(),
            "x-forwarded-proto: https".to_owned(),
            format!("x-real-ip: {text}"),
        ];
        assert_eq!(passed_on(&["X-Forwarded-Host: evil.example"], &hop), expected);
    }
    // Every byte that an authority may have.
    for byte in 0..=u8::MAX {
        if let Ok(host) = Authority::try_from([b"a", &[byte][..], b"c"].concat().as_slice()) {
            let passed_on = passed_on(&[], &hop(&host, false));
            assert_eq!(passed_on[0], format!("forwarded: for=192.0.2.1;proto=http;host=\"{host}\""));
            assert!(!matches!(byte, b'"' | b'\\'), "{host}");
        }
    }
}

#[test]
fn headers_of_one_connection_stay_there() {
    for (lines_in, expected) in [
        (&["Connection: close"][..], &[][..]),
        (&["Connection: X-Hop , keep-alive", "Connection: x-other", "X-Hop: 1", "X-Other: 2"], &[]),
        (&["Connection: ,,a b,@,X-Hop", "X-Hop: 1", "X-End: 2"], &["x-end: 2"]),
        (&["Connection: X-Hop, \u{e9}", "X-Hop: 1"], &[]),
        (&["Keep-Alive: 5", "Proxy-Connection: a", "Trailer: a", "Upgrade: h2c", "HTTP2-Settings: a"], &[]),
        (&["Proxy-Authorization: a", "Proxy-Authenticate: a", "Proxy-Authentication-Info: a"], &[]),
        (&["Connection: Host, Via", "Host: a", "Via: 1.1 b"], &["host: a", "via: 1.1 b"]),
        (&["Authorization: a", "Content-Length: 5"], &["authorization: a", "content-length: 5"]),
        // A coding and a length.
        (&["Transfer-Encoding: chunked", "Content-Length: 5"], &[]),
        (&["Transfer-Encoding: gzip", "Transfer-Encoding: chunked", "Content-Length: 5"], &[]),
        // Trailers.
        (&["TE: trailers"], &["te: trailers"]),
        (&["TE: gzip;q=0.5, Trailers", "Connection: TE"], &["te: trailers"]),
        (&["TE: gzip", "TE: trailers"], &["te: trailers"]),
        (&["TE: gzip, trailersx"], &[]),
    ] {
        let mut headers = headers(lines_in);
        drop_hop_by_hop(&mut headers);
        assert_eq!(lines(&headers), expected, "{lines_in:?}");
    }
}

#[test]
fn a_websocket_handshake_stays_one() {
    const KEY: &str = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    const VERSION: &str = "Sec-WebSocket-Version: 13";
    for lines_in in [
        &["Connection: Upgrade", "Upgrade: websocket", KEY, VERSION][..],
        &["Connection: keep-alive, UPGRADE, x-hop", "Upgrade: h2c, WebSocket", "X-Hop: 1", KEY, VERSION],
        &["Connection: keep-alive", "Connection: upgrade", "Upgrade: a", "Upgrade: websocket", KEY, VERSION],
    ] {
        let mut headers = headers(lines_in);
        drop_hop_by_hop(&mut headers);
        let left = lines(&headers);
        assert_eq!(left[..1], ["connection: upgrade"], "{lines_in:?}");
        assert_eq!(left[3..], ["upgrade: websocket"], "{lines_in:?}");
        // A proxy behind this one leaves these headers as they are.
        drop_hop_by_hop(&mut headers);
        assert_eq!(lines(&headers), left, "{lines_in:?}");
    }
    for lines_in in [
        &["Connection: Upgrade", "Upgrade: websocket", VERSION][..],
        &["Connection: Upgrade", "Upgrade: websocket", KEY],
        &["Connection: Upgrade", "Upgrade: h2c", KEY, VERSION],
        &["Connection: Upgrade", KEY, VERSION],
        &["Upgrade: websocket", KEY, VERSION],
        &["Connection: keep-alive", "Upgrade: websocket", KEY, VERSION],
        &["Connection: Upgrade, Sec-WebSocket-Key", "Upgrade: websocket", KEY, VERSION],
        &["Connection: Upgrade, sec-websocket-version", "Upgrade: websocket", KEY, VERSION],
    ] {
        let mut headers = headers(lines_in);
        drop_hop_by_hop(&mut headers);
        assert!(!headers.contains_key("connection") && !headers.contains_key("upgrade"), "{lines_in:?}");
    }
}
