//! The limit of each client, and its headers in a response.

use std::net::{SocketAddr, TcpListener};

use crate::support::{Connection, OK, Proxy, Upstream, refusing};

#[test]
fn a_client_gets_its_burst_and_then_429_with_the_wait() {
    let proxy = Proxy::start("--limit 3/h");
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

/// The upstream may be a service with a layer.
#[test]
fn a_limit_of_the_upstream_keeps_its_name_and_that_of_the_proxy_is_another() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nRateLimit-Policy: \"default\";q=9;w=9\r\nRateLimit: \"default\";r=8;t=1\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let reply = Proxy::over(&upstream.url(), "--limit 3/h").get("/");
    let values = |name: &str| {
        let of_name = reply.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| &**value).collect::<Vec<_>>()
    };
    assert_eq!(values("ratelimit-policy"), ["\"default\";q=9;w=9", "\"default-2\";q=3;w=3600"]);
    let [theirs, ours] = values("ratelimit")[..] else { panic!("{reply:?}") };
    assert!(theirs == "\"default\";r=8;t=1" && ours.starts_with("\"default-2\";r=2;"), "{reply:?}");
}

#[test]
fn a_refusal_of_an_unread_body_says_that_it_is_the_last() {
    let proxy = Proxy::start("--limit 1/h");
    assert_eq!(proxy.get("/").status, 200);
    for (more, connection) in [
        // This body is here at once, and the connection goes on.
        ("Content-Length: 3\r\n\r\nabc", None),
        ("Content-Length: 5000000\r\n\r\n", Some("close")),
        ("Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", Some("close")),
        ("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Some("close")),
    ] {
        let mut client = proxy.connect();
        let refused = client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\n{more}"));
        assert_eq!((refused.status, refused.header("connection")), (429, connection), "{more:?}");
        assert!(connection.is_some() || client.get("/").status == 429);
    }
}

#[test]
fn ipv4_and_ipv6_addresses_have_buckets_of_their_own() {
    // On a host without IPv6 the test checks nothing.
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let upstream = Upstream::answering(OK);
    let proxy = Proxy::on("[::]:0", &format!("--limit 1/h --upstream {}", upstream.url()));
    let port = proxy.address.port();
    for (address, node, ip) in [
        (SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)), "\"[::1]\"", "::1"),
        (SocketAddr::from(([127, 0, 0, 1], port)), "127.0.0.1", "127.0.0.1"),
    ] {
        let mut client = Connection::connect(address);
        assert_eq!(client.get("/").status, 200);
        let request = upstream.next();
        assert_eq!(request.all("forwarded"), [format!("for={node};proto=http;host=\"a.example\"")]);
        assert_eq!(request.all("x-forwarded-for"), [ip]);
        assert_eq!(client.get("/").status, 429);
    }
}

#[test]
fn a_header_key_gives_each_value_a_bucket_and_falls_back_to_the_address() {
    let proxy = Proxy::start("--limit 2/h --key header:x-api-key");
    let mut client = proxy.connect();
    let spellings = [
        "X-Api-Key: a\r\n",
        "x-api-key: b\r\n",
        // A value in the form of the client's address is not the client's address.
        "X-API-Key: 127.0.0.1\r\n",
        "",
    ];
    for key in spellings {
        let statuses = [(); 3].map(|()| client.get_with("/", key).status);
        assert_eq!(statuses, [200, 200, 429], "{key:?}");
    }
    // Two values count as none. The address's bucket is empty by now.
    assert_eq!(client.get_with("/", "X-Api-Key: c\r\nX-Api-Key: d\r\n").status, 429);
}

#[test]
fn what_a_trusted_proxy_says_is_believed() {
    let upstream = Upstream::answering(OK);
    let options = "--limit 1/h --trust-proxy 127.0.0.0/8 --trust-proxy 198.51.100.7";
    let proxy = Proxy::over(&upstream.url(), options);
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
            assert_eq!(upstream.next().all("x-forwarded-for"), [format!("{forwarded}, 127.0.0.1")]);
        }
    }

    let proxy = Proxy::start("--limit 1/h --trust-proxy 10.0.0.0/8");
    let mut client = proxy.connect();
    let forwarded = |host| format!("X-Forwarded-For: 203.0.113.{host}\r\n");
    assert_eq!([1, 2].map(|host| client.get_with("/", &forwarded(host)).status), [200, 429]);
    assert_eq!(proxy.metric("tollgate_forwarded_from_untrusted_total"), 2);
}

#[test]
fn in_shadow_mode_nobody_is_refused_and_all_is_counted() {
    let proxy = Proxy::start("--limit 2/h --shadow");
    let mut client = proxy.connect();
    for _ in 0..5 {
        let reply = client.get("/");
        assert_eq!((reply.status, reply.header("ratelimit"), reply.header("retry-after")), (200, None, None));
    }
    let counts = ["granted", "refused", "shadow_refused"].map(|result| proxy.decided("default", result));
    assert_eq!(counts, [2, 0, 3]);
    proxy.line_with("would be refused");
}

#[test]
fn no_header_of_a_client_makes_a_refusal_a_success_or_an_answer_that_a_cache_may_store() {
    let nowhere = refusing();
    let proxy = Proxy::over(&nowhere, "--limit 1/h");
    assert_eq!(proxy.get("/").status, 502);
    for headers in [
        "",
        "Content-Type: application/grpc\r\n",
        "Content-Type: application/grpc-web\r\n",
        "Content-Type: application/grpc-ANYTHING\r\n",
    ] {
        let refused = proxy.connect().get_with("/logo.png", headers);
        assert_eq!((refused.status, refused.all("cache-control")), (429, vec!["no-store"]), "{refused:?}");
        assert_eq!(refused.header("content-type"), Some("text/plain; charset=utf-8"), "{headers:?}");
    }
    let proxy = Proxy::over(&nowhere, "--limit none");
    for (expected, request) in [
        (502, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n"),
        (501, "GET / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ] {
        let answer = proxy.connect().send(request);
        assert_eq!((answer.status, answer.all("cache-control")), (expected, vec!["no-store"]), "{answer:?}");
    }
}
