//! The limit of each client, and its headers in a response.

use std::net::{SocketAddr, TcpListener};

use super::PATIENCE;
use super::process::{Client, Proxy, recording_upstream, refusing, url};

#[test]
fn a_client_gets_its_burst_and_then_429_with_the_wait() {
    let proxy = Proxy::start(&["--limit", "3/h burst 3"]);
    let mut client = proxy.connect();
    for _ in 0..3 {
        let reply = client.get("/some/path?q=1");
        assert_eq!(reply.status, 200);
        assert!(reply.body.starts_with("GET /some/path?q=1 HTTP/1.1\n"), "{reply:?}");
    }
    // The same connection, and then another port of the same address, share one bucket.
    for mut client in [client, proxy.connect()] {
        let refused = client.get("/");
        assert_eq!(refused.status, 429);
        let seconds: u64 = refused.header("retry-after").expect("a wait").parse().expect("whole seconds");
        assert!((1..=1200).contains(&seconds), "a token takes 1,200 s, not {seconds}");
        assert!(refused.body.ends_with('\n') && refused.body.lines().count() == 1, "{refused:?}");
        assert!(refused.body.contains(&format!("{seconds} s")), "{refused:?}");
        assert_eq!(refused.header("ratelimit"), Some(&*format!("\"default\";r=0;t={seconds}")));
        assert_eq!(refused.header("ratelimit-policy"), Some("\"default\";q=3;w=3600"));
    }

    let (mut granted, mut refused) = (0, 0);
    while (granted, refused) != (3, 2) {
        let line = proxy.line_with("granted ");
        let number = |name| -> u64 {
            let after = line.split_once(name).unwrap_or_else(|| panic!("no {name:?} in {line:?}")).1;
            after.split(',').next().expect("a first part").parse().expect("a number")
        };
        granted += number("granted ");
        refused += number("refused ");
        assert_eq!(number("keys "), 1);
    }
}

#[test]
fn a_refusal_of_an_unread_body_says_that_it_is_the_last() {
    let proxy = Proxy::start(&["--limit", "1/h burst 1"]);
    assert_eq!(proxy.connect().get("/").status, 200);
    let mut client = proxy.connect();
    // This body is here at once, and the connection goes on.
    let whole = client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!((whole.status, whole.header("connection")), (429, None));
    for head in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let refused = client.send(head);
        assert_eq!((refused.status, refused.header("connection")), (429, Some("close")), "{head:?}");
        client = proxy.connect();
    }
}

#[test]
fn ipv4_and_ipv6_addresses_have_buckets_of_their_own() {
    // On a host without IPv6 the test checks nothing.
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let (upstream, requests) = recording_upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let proxy = Proxy::start_on("[::]:0", &["--limit", "1/h burst 1", "--upstream", &url(upstream)]);
    let port = proxy.address.port();
    for (address, node, ip) in [
        (SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)), "\"[::1]\"", "::1"),
        (SocketAddr::from(([127, 0, 0, 1], port)), "127.0.0.1", "127.0.0.1"),
    ] {
        let mut client = Client::connect(address);
        assert_eq!(client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").status, 200);
        let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
        assert_eq!(request.all("forwarded"), [format!("for={node};proto=http;host=\"a.example\"")]);
        assert_eq!(request.all("x-forwarded-for"), [ip]);
        assert_eq!(client.get("/").status, 429);
    }
}

#[test]
fn a_header_key_gives_each_value_a_bucket_and_falls_back_to_the_address() {
    let proxy = Proxy::start(&["--limit", "2/h burst 2", "--key", "header:x-api-key"]);
    let mut client = proxy.connect();
    let spellings = [
        "X-Api-Key: a\r\n",
        "x-api-key: b\r\n",
        // A value in the form of the client's address is not the client's address.
        "X-API-Key: 127.0.0.1\r\n",
        "",
    ];
    for key in spellings {
        let statuses = [200, 200, 429].map(|_| client.get_with("/", key).status);
        assert_eq!(statuses, [200, 200, 429], "{key:?}");
    }
    // Two values count as none. The address's bucket is empty by now.
    assert_eq!(client.get_with("/", "X-Api-Key: c\r\nX-Api-Key: d\r\n").status, 429);
}

#[test]
fn what_a_trusted_proxy_says_is_believed() {
    let (upstream, requests) = recording_upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let args = ["--limit", "1/h burst 1", "--upstream", &url(upstream), "--trust-proxy"];
    let proxy = Proxy::start(&[&args[..], &["127.0.0.0/8", "--trust-proxy", "198.51.100.7"]].concat());
    let mut client = proxy.connect();
    for (forwarded, statuses) in [
        ("203.0.113.1", [200, 429]),
        // The proxy reads from the right, up to the first address that is not trusted. The rest is
        // a claim of that client.
        ("203.0.113.1, 203.0.113.2, 198.51.100.7", [200, 429]),
        ("203.0.113.3, 203.0.113.2", [429, 429]),
        // An entry that is no address is not skipped.
        ("203.0.113.4, unknown, 198.51.100.7", [200, 429]),
        ("2001:db8::1", [200, 429]),
        ("2001:db8::2", [429, 429]),
    ] {
        let header = format!("X-Forwarded-For: {forwarded}\r\n");
        let got = [0; 2].map(|_| client.get_with("/", &header).status);
        assert_eq!(got, statuses, "{forwarded}");
        if got[0] == 200 {
            let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
            assert_eq!(request.all("x-forwarded-for"), [format!("{forwarded}, 127.0.0.1")]);
        }
    }

    let proxy =
        Proxy::start(&["--limit", "1/h burst 1", "--trust-proxy", "10.0.0.0/8", "--admin", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    let forwarded = |host| format!("X-Forwarded-For: 203.0.113.{host}\r\n");
    assert_eq!([1, 2].map(|host| client.get_with("/", &forwarded(host)).status), [200, 429]);
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    assert!(metrics.contains("\ntollgate_forwarded_from_untrusted_total 2\n"), "{metrics}");
}

#[test]
fn in_shadow_mode_nobody_is_refused_and_all_is_counted() {
    let proxy = Proxy::start(&["--limit", "2/h burst 2", "--shadow", "--admin", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    for _ in 0..5 {
        let reply = client.get("/");
        assert_eq!((reply.status, reply.header("ratelimit"), reply.header("retry-after")), (200, None, None));
    }
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    for (result, count) in [("granted", 2), ("refused", 0), ("shadow_refused", 3)] {
        let line = format!("\ntollgate_decisions_total{{policy=\"default\",result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line:?} in {metrics}");
    }
    proxy.line_with("would be refused");
}

#[test]
fn no_header_of_a_client_makes_a_refusal_a_success_or_an_answer_that_a_cache_may_store() {
    let proxy = Proxy::start(&["--limit", "1/h burst 1", "--upstream", &url(refusing())]);
    assert_eq!(proxy.connect().get("/").status, 502);
    for (expected, headers) in [
        (429, ""),
        (429, "Content-Type: application/grpc\r\n"),
        (429, "Content-Type: application/grpc-web\r\n"),
        (429, "Content-Type: application/grpc-ANYTHING\r\n"),
    ] {
        let refused = proxy.connect().get_with("/logo.png", headers);
        assert_eq!(refused.status, expected, "{headers:?}: {refused:?}");
        assert_eq!(refused.all("cache-control"), ["no-store"], "{headers:?}: {refused:?}");
        assert_eq!(refused.header("content-type"), Some("text/plain; charset=utf-8"), "{headers:?}");
    }
    let proxy = Proxy::start(&["--limit", "none", "--upstream", &url(refusing())]);
    for (expected, request) in [
        (502, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n"),
        (501, "GET / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ] {
        let answer = proxy.connect().send(request);
        assert_eq!((answer.status, answer.all("cache-control")), (expected, vec!["no-store"]), "{answer:?}");
    }
}
