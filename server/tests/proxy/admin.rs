//! The admin pages: metrics, events, the page, and the change of a limit.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process::{Client, Message, Proxy, read_chunk};

const ADMIN: [&str; 2] = ["--admin", "127.0.0.1:0"];

fn start(args: &[&str]) -> Proxy {
    Proxy::start(&[args, &ADMIN].concat())
}

/// Returns the state of the proxy, which is the first event of a new connection.
fn event(proxy: &Proxy) -> Value {
    let mut client = proxy.admin();
    client.write(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin));
    let head = Message::read_head(&mut client.0).expect("a response");
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    read_event(&mut client)
}

fn read_event(client: &mut Client) -> Value {
    let chunk = read_chunk(&mut client.0);
    let data = chunk.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n"));
    serde_json::from_str(data.unwrap_or_else(|| panic!("no event: {chunk:?}"))).expect("JSON")
}

#[test]
fn metrics_are_what_was_decided_and_name_nobody() {
    let proxy = start(&["--limit", "3/h burst 3"]);
    let mut client = proxy.connect();
    (0..5).for_each(|_| drop(client.get("/secret-path")));
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
    let proxy = start(&["--limit", "3/h burst 3"]);
    let mut client = proxy.connect();
    let mut admin = proxy.admin();
    admin.write(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin));
    Message::read_head(&mut admin.0).expect("a response");
    let first = read_event(&mut admin);
    assert_eq!((&first["granted"], &first["limit"]["text"]), (&0.into(), &"3/h burst 3".into()));
    (0..5).for_each(|_| drop(client.get("/")));
    let (mut granted, mut refused) = (0, 0);
    while (granted, refused) != (3, 2) {
        let event = read_event(&mut admin);
        granted += event["granted"].as_u64().expect("a number");
        refused += event["refused"].as_u64().expect("a number");
        assert!(granted <= 3 && refused <= 2, "{event}");
    }
    let top = &event(&proxy)["top"][0];
    assert_eq!((&top["key"], &top["refused"], &top["left"]), (&"127.0.0.1".into(), &2.into(), &0.into()));
}

#[test]
fn events_tell_of_exempt_requests_apart() {
    let proxy = start(&["--limit", "3/h burst 3", "--exempt-path", "/health"]);
    let mut admin = proxy.admin();
    admin.write(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin));
    Message::read_head(&mut admin.0).expect("a response");
    assert_eq!(read_event(&mut admin)["exempt"], 0);
    let mut client = proxy.connect();
    (0..4).for_each(|_| assert_eq!(client.get("/health").status, 200));
    (0..2).for_each(|_| assert_eq!(client.get("/").status, 200));
    let (mut granted, mut exempt) = (0, 0);
    let begin = Instant::now();
    while (granted, exempt) != (2, 4) {
        assert!(begin.elapsed() < super::PATIENCE, "{granted} granted, {exempt} exempt");
        let event = read_event(&mut admin);
        granted += event["granted"].as_u64().expect("a number");
        exempt += event["exempt"].as_u64().expect("a number");
        assert!(granted <= 2 && exempt <= 4 && event["refused"] == 0, "{event}");
    }
    let page = proxy.ask_admin("GET", "/", "").body;
    assert!(page.contains("id=\"exempt\"") && page.contains("event.exempt") && page.contains("route.exempt"));
}

#[test]
fn a_limit_that_is_changed_live_leaves_tokens_as_they_are() {
    let proxy = start(&["--limit", "5/h burst 5"]);
    let mut client = proxy.connect();
    (0..3).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(proxy.ask_admin("POST", "/limit", "5/h burst 10\n").status, 204);
    assert_eq!(event(&proxy)["limit"]["text"], "5/h burst 10");
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
    assert_eq!(event(&proxy)["limit"]["text"], "5/h burst 10");
    assert_eq!(start(&["--limit", "none"]).ask_admin("POST", "/limit", "5/s").status, 409);
}

#[test]
fn the_limit_of_a_window_is_changed_live() {
    let proxy = start(&["--limit", "3/h fixed"]);
    let mut client = proxy.connect();
    let first = client.get("/");
    assert_eq!(first.header("ratelimit-policy"), Some("\"default\";q=3;w=3601"));
    assert!(
        first.header("ratelimit").is_some_and(|left| left.starts_with("\"default\";r=2;t=")),
        "{first:?}"
    );
    assert_eq!(client.get("/").status, 200);
    assert_eq!(proxy.ask_admin("POST", "/limit", "4/h fixed\n").status, 204);
    assert_eq!(event(&proxy)["limit"]["text"], "4/h fixed");
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
    let proxy = start(&["--limit", "5/h burst 5"]);
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
    assert_eq!(event(&proxy)["limit"]["text"], "5/h burst 5");
    for host in [host, format!("localhost:{port}"), format!("LOCALHOST:{port}"), format!("[::1]:{port}")] {
        assert_eq!(post(&host, &format!("Origin: http://{host}\r\n")), 204, "{host}");
    }
    assert_eq!(event(&proxy)["limit"]["text"], "6/h burst 6");
}

#[test]
fn nothing_is_served_to_a_name_of_others() {
    let proxy = start(&[]);
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

/// Returns the metrics over a new connection, by a client that waits for `AT_ONCE` only.
fn metrics_at_once(proxy: &Proxy) -> Message {
    let mut client = proxy.admin();
    client.0.get_ref().set_read_timeout(Some(AT_ONCE)).expect("not zero");
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

#[test]
fn silent_connections_do_not_keep_others_from_the_metrics() {
    let proxy = start(&[]);
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
    for start in ["", "GET /met", head, "POST /limit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"] {
        let silent: Vec<Client> = (0..100)
            .map(|_| {
                let mut client = proxy.admin();
                client.write(start);
                client
            })
            .collect();
        assert_eq!(metrics_at_once(&proxy).status, 200, "{start:?}");
        drop(silent);
    }
    // These connections are kept alive, and their clients read nothing.
    let asking: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = proxy.admin();
            // The proxy may have closed the connection by then.
            let _ = client.0.get_mut().write_all(format!("{head}\r\n").repeat(200).as_bytes());
            client
        })
        .collect();
    assert_eq!(metrics_at_once(&proxy).status, 200);
    drop(asking);
}

#[test]
fn readers_of_events_do_not_keep_others_from_the_metrics() {
    let proxy = start(&[]);
    let mut readers = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..40 {
        let mut client = proxy.admin();
        client.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        statuses.push(Message::read_head(&mut client.0).expect("a response").status);
        readers.push(client);
    }
    assert_eq!(statuses[..16], [200; 16]);
    assert!(statuses[16..].iter().all(|status| *status == 503), "{statuses:?}");
    // Silent connections beside the readers do not take the readers' places.
    let _silent: Vec<Client> = (0..100).map(|_| proxy.admin()).collect();
    assert_eq!(metrics_at_once(&proxy).status, 200);
    for reader in &mut readers[..16] {
        assert!(read_event(reader)["limit"].is_object());
    }
    // A reader that leaves makes room for another.
    readers.clear();
    loop {
        let mut client = proxy.admin();
        client.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if Message::read_head(&mut client.0).expect("a response").status == 200 {
            break;
        }
    }
}

#[test]
fn a_head_is_a_get_without_its_body() {
    let proxy = start(&[]);
    for path in ["/", "/events", "/metrics", "/healthz", "/readyz"] {
        let mut client = proxy.admin();
        // Both requests use one connection: a body would be read as the next head.
        for _ in 0..2 {
            client.write(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            let head = Message::read_head(&mut client.0).expect("a response");
            assert_eq!((head.status, head.header("cache-control")), (200, Some("no-store")), "{path}");
            let mut other = proxy.admin();
            other.write(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            let get = Message::read_head(&mut other.0).expect("a response");
            assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        }
    }
    let mut client = proxy.admin();
    client.write("HEAD /other HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(Message::read_head(&mut client.0).expect("a response").status, 404);
}

#[test]
fn another_method_is_told_of_those_that_there_are() {
    let proxy = start(&[]);
    for (path, methods, allowed) in [
        ("/", &["PUT", "DELETE", "OPTIONS", "POST"][..], "GET, HEAD"),
        ("/events", &["PUT", "POST"], "GET, HEAD"),
        ("/metrics", &["PUT", "POST"], "GET, HEAD"),
        ("/healthz", &["PUT", "POST"], "GET, HEAD"),
        ("/readyz", &["PUT", "POST"], "GET, HEAD"),
        ("/limit", &["GET", "HEAD", "PUT", "OPTIONS", "DELETE"], "POST"),
    ] {
        for method in methods {
            let mut client = proxy.admin();
            let host = proxy.admin;
            client
                .write(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n"));
            let head = Message::read_head(&mut client.0).expect("a response");
            assert_eq!((head.status, head.header("allow")), (405, Some(allowed)), "{method} {path}");
            // A page of another origin must not be let in.
            assert!(head.headers.iter().all(|header| !header.0.starts_with("access-control-")), "{head:?}");
        }
    }
}

#[test]
fn hosts_that_are_named_are_served() {
    let proxy = start(&["--admin-host", "admin.example", "--admin-host", "Other.example"]);
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
    let proxy = start(&["--limit", "1/h burst 1", "--key", "header:x-api-key"]);
    let mut client = proxy.connect();
    for key in ["<script>alert(1)</script>", "\"}</script>"] {
        let header = format!("X-Api-Key: {key}\r\n");
        assert_eq!([0; 2].map(|_| client.get_with("/", &header).status), [200, 429]);
    }
    let event = event(&proxy);
    let top = event["top"].as_array().expect("a list");
    assert_eq!(top.len(), 2, "{event}");
    for key in top {
        let digits = key["key"].as_str().and_then(|key| key.strip_prefix('#')).expect("a digest");
        assert!(digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{event}");
    }
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    assert!(!event.to_string().contains("script") && !metrics.contains("script"));
}

/// The page is under a strict policy, and needs nothing but itself.
#[test]
fn the_page_is_in_one_piece() {
    let proxy = start(&[]);
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
