//! The admin pages: metrics, events, the page, and the change of a limit.

use std::time::Duration;

use crate::support::{Connection, Message, Proxy, read_event, until};

#[test]
fn metrics_are_what_was_decided_and_name_nobody() {
    let proxy = Proxy::start("--limit 3/h");
    proxy.statuses::<5>("/secret-path");
    let metrics = proxy.ask_admin("GET", "/metrics", "");
    assert_eq!((metrics.status, metrics.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    for line in [
        "# TYPE tollgate_decisions_total counter",
        "tollgate_decisions_total{policy=\"default\",result=\"granted\"} 3",
        "tollgate_decisions_total{policy=\"default\",result=\"refused\"} 2",
        "tollgate_keys{policy=\"default\"} 1",
    ] {
        assert!(metrics.body.lines().any(|own| own == line), "{line} in {}", metrics.body);
    }
    // The upstream has a name.
    let of_clients = |line: &&str| !line.starts_with("tollgate_upstream_up");
    let lines: Vec<&str> = metrics.body.lines().filter(of_clients).collect();
    assert!(lines.iter().all(|line| !line.contains("127.0.0.1") && !line.contains("secret-path")));
}

#[test]
fn events_tell_what_was_decided_since_the_last() {
    let proxy = Proxy::start("--limit 3/h --exempt-path /health");
    let mut events = proxy.events();
    let first = read_event(&mut events);
    assert_eq!((&first["granted"], &first["limit"]["text"]), (&0.into(), &"3/h burst 3".into()));
    assert_eq!(first["exempt"], 0);
    proxy.statuses::<5>("/");
    assert_eq!(proxy.statuses("/health"), [200; 4]);
    Proxy::await_events(&mut events, &[("granted", 3), ("refused", 2), ("exempt", 4)]);
    let top = &proxy.event()["top"][0];
    assert_eq!((&top["key"], &top["refused"], &top["left"]), (&"127.0.0.1".into(), &2.into(), &0.into()));
    let page = proxy.ask_admin("GET", "/", "").body;
    assert!(page.contains("id=\"exempt\"") && page.contains("event.exempt") && page.contains("route.exempt"));
}

#[test]
fn a_limit_that_is_changed_live_leaves_tokens_as_they_are() {
    let proxy = Proxy::start("--limit 5/h");
    let mut client = proxy.connect();
    assert_eq!(proxy.statuses("/"), [200; 3]);
    assert_eq!(proxy.ask_admin("POST", "/limit", "5/h burst 10\n").status, 204);
    assert_eq!(proxy.event()["limit"]["text"], "5/h burst 10");
    let reply = client.get("/");
    assert!(reply.header("ratelimit").is_some_and(|left| left.starts_with("\"default\";r=1;")), "{reply:?}");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"default\";q=10;w=7200"));
    assert_eq!([0; 2].map(|_| client.get("/").status), [200, 429]);

    for (body, part) in [
        ("fast", "fast"),
        ("", "quota"),
        ("0/s burst 1", "1"),
        ("1000000000/s burst 1000000000", "bound"),
        (&"1".repeat(1000), "quota"),
    ] {
        let reply = proxy.ask_admin("POST", "/limit", body);
        assert_eq!((reply.status, reply.body.lines().count()), (400, 1), "{reply:?}");
        assert!(reply.body.contains(part), "{reply:?}");
    }
    assert_eq!(proxy.event()["limit"]["text"], "5/h burst 10");
    assert_eq!(Proxy::start("--limit none").ask_admin("POST", "/limit", "5/s").status, 409);
}

#[test]
fn the_limit_of_a_window_is_changed_live() {
    let proxy = Proxy::start("--limit 3/h&fixed");
    let mut client = proxy.connect();
    let first = client.get("/");
    assert_eq!(first.header("ratelimit-policy"), Some("\"default\";q=3;w=3601"));
    assert!(
        first.header("ratelimit").is_some_and(|left| left.starts_with("\"default\";r=2;t=")),
        "{first:?}"
    );
    assert_eq!(client.get("/").status, 200);
    assert_eq!(proxy.ask_admin("POST", "/limit", "4/h fixed\n").status, 204);
    assert_eq!(proxy.event()["limit"]["text"], "4/h fixed");
    let refused = [0; 3].map(|_| client.get("/"));
    assert_eq!(refused.each_ref().map(|reply| reply.status), [200, 200, 429]);
    assert!(refused[2].body.contains("the limit is 4/h fixed"), "{:?}", refused[2]);
    for other in ["4/h", "4/m fixed", "4/h sliding", "4/h fixed utc"] {
        let reply = proxy.ask_admin("POST", "/limit", other);
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.body.contains("counts in another way than 4/h fixed"), "{reply:?}");
    }
}

#[test]
fn a_post_needs_the_origin_of_the_page() {
    let proxy = Proxy::start("--limit 5/h");
    let port = proxy.admin.port();
    let post = |host: &str, origin: &str| {
        let request =
            format!("POST /limit HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Length: 11\r\n\r\n6/h burst 6");
        proxy.admin().send(&request).status
    };
    let host = format!("127.0.0.1:{port}");
    for origin in [
        String::new(),
        "Origin: null\r\n".to_owned(),
        "Origin: http://evil.example\r\n".to_owned(),
        format!("Origin: https://{host}\r\n"),
        format!("Origin: http://{host}.evil.example\r\n"),
        format!("Origin: http://localhost:{port}\r\n"),
        "Origin: http://127.0.0.1\r\n".to_owned(),
        format!("Origin: http://{host}\r\nOrigin: http://evil.example\r\n"),
        format!("Referer: http://{host}/\r\n"),
    ] {
        assert_eq!(post(&host, &origin), 403, "{origin:?}");
    }
    // A name of another owner that leads to this host.
    assert_eq!(post("evil.example", "Origin: http://evil.example\r\n"), 403);
    assert_eq!(proxy.event()["limit"]["text"], "5/h burst 5");
    for host in [host, format!("localhost:{port}"), format!("LOCALHOST:{port}"), format!("[::1]:{port}")] {
        assert_eq!(post(&host, &format!("Origin: http://{host}\r\n")), 204, "{host}");
    }
    assert_eq!(proxy.event()["limit"]["text"], "6/h burst 6");
}

#[test]
fn nothing_is_served_to_a_name_of_others() {
    let proxy = Proxy::start("");
    let get =
        |path: &str, host: &str| proxy.admin().send(&format!("GET {path} HTTP/1.1\r\n{host}\r\n")).status;
    for path in ["/", "/events", "/metrics", "/limit", "/other"] {
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1", "me@localhost"]
        {
            assert_eq!(get(path, &format!("Host: {host}\r\n")), 403, "{host}");
        }
        assert_eq!(get(path, ""), 403);
        assert_eq!(get(path, "Host: localhost\r\nHost: localhost\r\n"), 403);
    }
    for (path, status) in [("/", 200), ("/metrics", 200), ("/limit", 405), ("/other", 404)] {
        assert_eq!(get(path, "Host: localhost\r\n"), status, "{path}");
    }
    for path in ["/", "/events", "/metrics"] {
        assert_eq!(proxy.ask_admin("POST", path, "").status, 405);
    }
}

/// Far fewer seconds than the time for which a connection may be silent.
const AT_ONCE: Duration = Duration::from_secs(5);

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the metrics over a new connection, by a client that waits for `AT_ONCE` only.
fn metrics_at_once(proxy: &Proxy) -> Message {
    let mut client = proxy.admin();
    client.stream.set_read_timeout(Some(AT_ONCE)).expect("not zero");
    client.send(METRICS)
}

#[test]
fn silent_connections_do_not_keep_others_from_the_metrics() {
    let proxy = Proxy::start("");
    let head = METRICS.trim_end();
    let length = "POST /limit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n";
    // The clients of the last ones read nothing, over connections that are kept alive.
    for start in ["", "GET /met", head, length, &METRICS.repeat(200)] {
        let silent: Vec<Connection> = (0..100)
            .map(|_| {
                let mut client = proxy.admin();
                // The proxy may have closed the connection by then.
                let _ = client.try_write(start);
                client
            })
            .collect();
        assert_eq!(metrics_at_once(&proxy).status, 200, "{start:.50?}");
        drop(silent);
    }
}

/// Asks for a page of the admin address, and returns the connection and the head of the response.
fn head_of(proxy: &Proxy, method: &str, path: &str) -> (Connection, Message) {
    let (mut client, host) = (proxy.admin(), proxy.admin);
    let head =
        client.ask(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n"));
    (client, head)
}

#[test]
fn readers_of_events_do_not_keep_others_from_the_metrics() {
    let proxy = Proxy::start("");
    let mut readers: Vec<_> = (0..40).map(|_| head_of(&proxy, "GET", "/events")).collect();
    let statuses: Vec<u16> = readers.iter().map(|(_, head)| head.status).collect();
    assert_eq!(statuses[..16], [200; 16]);
    assert!(statuses[16..].iter().all(|status| *status == 503), "{statuses:?}");
    // Silent connections beside the readers do not take the readers' places.
    let _silent: Vec<Connection> = (0..100).map(|_| proxy.admin()).collect();
    assert_eq!(metrics_at_once(&proxy).status, 200);
    for (reader, _) in &mut readers[..16] {
        assert!(read_event(reader)["limit"].is_object());
    }
    // A reader that leaves makes room for another.
    readers.clear();
    until("a place for a reader", || head_of(&proxy, "GET", "/events").1.status == 200);
}

#[test]
fn a_head_is_a_get_without_its_body() {
    let proxy = Proxy::start("");
    for path in ["/", "/events", "/metrics", "/healthz", "/readyz"] {
        let mut client = proxy.admin();
        // Both requests use one connection: a body would be read as the next head.
        for _ in 0..2 {
            let head = client.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert_eq!((head.status, head.header("cache-control")), (200, Some("no-store")), "{path}");
            let (_, get) = head_of(&proxy, "GET", path);
            assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        }
    }
    assert_eq!(head_of(&proxy, "HEAD", "/other").1.status, 404);
}

#[test]
fn another_method_is_told_of_those_that_there_are() {
    let proxy = Proxy::start("");
    for (path, methods, allowed) in [
        ("/", &["PUT", "DELETE", "OPTIONS", "POST"][..], "GET, HEAD"),
        ("/events", &["PUT", "POST"], "GET, HEAD"),
        ("/metrics", &["PUT", "POST"], "GET, HEAD"),
        ("/healthz", &["PUT", "POST"], "GET, HEAD"),
        ("/readyz", &["PUT", "POST"], "GET, HEAD"),
        ("/limit", &["GET", "HEAD", "PUT", "OPTIONS", "DELETE"], "POST"),
    ] {
        for method in methods {
            let (_, head) = head_of(&proxy, method, path);
            assert_eq!((head.status, head.header("allow")), (405, Some(allowed)), "{method} {path}");
            // A page of another origin must not be let in.
            assert!(head.headers.iter().all(|header| !header.0.starts_with("access-control-")), "{head:?}");
        }
    }
}

#[test]
fn hosts_that_are_named_are_served() {
    let proxy = Proxy::start("--admin-host admin.example --admin-host Other.example");
    let send = |method: &str, path: &str, host: &str, origin: &str| {
        let lines = format!("Host: {host}\r\nOrigin: {origin}\r\nContent-Length: 3\r\n\r\n5/h");
        proxy.admin().send(&format!("{method} {path} HTTP/1.1\r\n{lines}")).status
    };
    for host in ["admin.example", "ADMIN.example:8081", "other.example", "localhost", "127.0.0.1"] {
        assert_eq!(send("GET", "/metrics", host, "null"), 200, "{host}");
        assert_eq!(send("POST", "/limit", host, &format!("http://{host}")), 204, "{host}");
        for origin in ["http://evil.example", "null", "https://admin.example.evil.example"] {
            assert_eq!(send("POST", "/limit", host, origin), 403, "{host}");
        }
    }
    for host in
        ["example", "www.admin.example", "admin.example.evil.example", "evil.example", "admin.example."]
    {
        assert_eq!(send("GET", "/metrics", host, "null"), 403, "{host}");
        assert_eq!(send("POST", "/limit", host, &format!("http://{host}")), 403, "{host}");
    }
    // A proxy with TLS may be in front of a name, but not of an address.
    assert_eq!(send("POST", "/limit", "admin.example", "https://admin.example"), 204);
    assert_eq!(send("POST", "/limit", "admin.example", "https://other.example"), 403);
    for host in ["localhost:8081", "127.0.0.1:8081"] {
        assert_eq!(send("POST", "/limit", host, &format!("https://{host}")), 403);
    }
}

#[test]
fn a_key_from_a_header_is_told_as_a_digest() {
    let proxy = Proxy::start("--limit 1/h --key header:x-api-key");
    let mut client = proxy.connect();
    for key in ["<script>alert(1)</script>", "\"}</script>"] {
        let header = format!("X-Api-Key: {key}\r\n");
        assert_eq!([0; 2].map(|_| client.get_with("/", &header).status), [200, 429]);
    }
    let event = proxy.event();
    let top = event["top"].as_array().expect("a list");
    assert_eq!(top.len(), 2, "{event}");
    for key in top {
        let digits = key["key"].as_str().and_then(|key| key.strip_prefix('#')).expect("a digest");
        assert!(digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{event}");
    }
    assert!(!event.to_string().contains("script") && !proxy.metrics().contains("script"));
}

/// The page is under a strict policy, and needs nothing but itself.
#[test]
fn the_page_is_in_one_piece() {
    let proxy = Proxy::start("");
    let nonces = [0; 2].map(|_| {
        let page = proxy.ask_admin("GET", "/", "");
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
        let policy = page.header("content-security-policy").expect("a policy");
        for rule in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(policy.split("; ").any(|own| own == rule), "{rule} in {policy}");
        }
        let nonce = policy.split("script-src 'nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        let nonce = nonce.expect("a nonce").to_owned();
        assert_eq!(page.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
        // The page tells of no key before the first event does.
        assert!(page.body.contains("<p class=\"faint\" id=\"none\" hidden>"));
        for part in
            ["://", "src=", "href=", "@import", "innerHTML", "insertAdjacent", "document.write", "NONCE"]
        {
            assert!(!page.body.contains(part), "{part}");
        }
        nonce
    });
    assert_ne!(nonces[0], nonces[1]);
}
