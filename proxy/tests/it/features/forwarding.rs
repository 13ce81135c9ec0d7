//! The headers that tell the upstream about the client.

use hyper::Method;

use crate::support::{Http2, Message, Proxy};

/// Values of a test that must never arrive from a peer that is not trusted.
const CLAIMS: [(&str, &str); 18] = [
    ("x-forwarded-for", "203.0.113.1"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "evil.example"),
    ("x-forwarded-port", "31337"),
    ("x-forwarded-server", "evil.example"),
    ("x-forwarded-prefix", "/evil"),
    ("x-real-ip", "203.0.113.1"),
    ("forwarded", "for=203.0.113.1;proto=https"),
    ("x_forwarded_for", "203.0.113.1"),
    ("x_forwarded_proto", "https"),
    ("x-forwarded_host", "evil.example"),
    ("x_real_ip", "203.0.113.1"),
    ("x_forwarded-port", "31337"),
    ("cf-connecting-ip", "203.0.113.1"),
    ("true-client-ip", "203.0.113.1"),
    ("x-client-ip", "203.0.113.1"),
    ("x-original-url", "/evil"),
    ("x-rewrite-url", "/evil"),
];

/// Returns the request that arrives at the upstream, over each version of HTTP.
fn arrives(options: &str, headers: &[(&str, &str)]) -> [(Proxy, Message); 2] {
    [false, true].map(|is_http2| {
        let (upstream, proxy) = Proxy::answered(options);
        let reply = if is_http2 {
            Http2::connect(proxy.address).send(Method::GET, "http://shop.example:81/", headers, "")
        } else {
            let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            proxy.connect().send(&format!("GET / HTTP/1.1\r\nHost: shop.example:81\r\n{lines}\r\n"))
        };
        assert_eq!(reply.status, 200);
        (proxy, upstream.next())
    })
}

/// Returns all names of headers in a request that tell about a client, also in other spellings.
fn told(request: &Message) -> Vec<&str> {
    let tells = |name: &str| {
        let name = name.replace('_', "-");
        let others = ["forwarded", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip"];
        name.starts_with("x-forwarded") || name.ends_with("-url") || others.contains(&&*name)
    };
    let mut names: Vec<&str> = request.headers.iter().map(|header| &*header.0).collect();
    names.retain(|name| tells(name));
    names.sort_unstable();
    names
}

const OURS: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

fn assert_own(proxy: &Proxy, request: &Message) {
    assert_eq!(told(request), OURS, "{request:?}");
    let port = proxy.address.port().to_string();
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example:81"),
        ("x-forwarded-port", &port),
        ("x-real-ip", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1;proto=http;host=\"shop.example:81\""),
    ] {
        assert_eq!(request.all(name), [value], "{request:?}");
    }
}

#[test]
fn no_claim_of_a_peer_that_is_not_trusted_arrives() {
    for (proxy, request) in arrives("", &CLAIMS) {
        assert_own(&proxy, &request);
    }
    // The trusted proxy is of another network.
    for (proxy, request) in arrives("--trust-proxy 10.0.0.0/8", &CLAIMS) {
        assert_own(&proxy, &request);
    }
}

#[test]
fn the_words_of_a_trusted_peer_stay_and_the_lists_grow() {
    let headers = [
        ("x-forwarded-for", "203.0.113.1, 203.0.113.2"),
        ("x-forwarded-for", "203.0.113.3"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "www.example"),
        ("x-forwarded-port", "443"),
        ("x-real-ip", "203.0.113.4"),
        ("forwarded", "for=203.0.113.3;proto=https;by=\"open"),
        // An upstream may take these names for those with hyphens.
        ("x_forwarded_for", "198.51.100.1"),
        ("x_forwarded_proto", "gopher"),
    ];
    for (_, request) in arrives("--trust-proxy 127.0.0.1", &headers) {
        assert_eq!(request.all("x-forwarded-for"), ["203.0.113.1, 203.0.113.2, 203.0.113.3, 127.0.0.1"]);
        assert_eq!(request.all("x-forwarded-proto"), ["https"]);
        assert_eq!(request.all("x-forwarded-host"), ["www.example"]);
        assert_eq!(request.all("x-forwarded-port"), ["443"]);
        // The limited address: the proxy before this one may not have set the header.
        assert_eq!(request.all("x-real-ip"), ["203.0.113.3"]);
        // The proxy's value has a line of its own, which the open quote before it does not swallow.
        let own = "for=127.0.0.1;proto=http;host=\"shop.example:81\"";
        assert_eq!(request.all("forwarded"), ["for=203.0.113.3;proto=https;by=\"open", own]);
        assert!(request.headers.iter().all(|header| !header.0.contains('_')), "{request:?}");
    }
}

#[test]
fn the_lacks_of_a_trusted_peer_are_filled_in() {
    // A header with two values counts as missing.
    let twice = [("x-forwarded-proto", "https"), ("x-forwarded-proto", "http"), ("x-real-ip", "203.0.113.9")];
    for (proxy, request) in arrives("--trust-proxy 127.0.0.1", &twice) {
        assert_eq!(told(&request), OURS, "{request:?}");
        assert_eq!(request.all("x-forwarded-proto"), ["http"]);
        assert_eq!(request.all("x-forwarded-host"), ["shop.example:81"]);
        assert_eq!(request.all("x-forwarded-port"), [proxy.address.port().to_string()]);
        assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(request.all("x-real-ip"), ["127.0.0.1"]);
    }
    for (_, request) in arrives("--trust-proxy 127.0.0.1", &[("x-forwarded-for", "203.0.113.1")]) {
        // The value is the address of the client, and not of the peer.
        assert_eq!(request.all("x-real-ip"), ["203.0.113.1"]);
    }
}

#[test]
fn connection_does_not_remove_the_words_of_this_proxy() {
    let connection = "close, X-Forwarded-For, X-Forwarded-Proto, Forwarded, X-Real-IP, Via, x-forwarded-host";
    for (options, list) in [("", "127.0.0.1"), ("--trust-proxy 127.0.0.1", "203.0.113.1, 127.0.0.1")] {
        let (upstream, proxy) = Proxy::answered(&format!("--via edge {options}"));
        let headers = format!("Connection: {connection}\r\nX-Forwarded-For: 203.0.113.1\r\n");
        assert_eq!(proxy.connect().get_with("/", &headers).status, 200);
        let request = upstream.next();
        assert_eq!(told(&request), OURS, "{request:?}");
        assert_eq!(request.all("x-forwarded-for"), [list]);
        assert_eq!(request.all("via"), ["1.1 edge"]);
    }
}
