//! Lines for operators on stderr.

use std::time::Instant;

use serde_json::Value;

use crate::support::{Certificate, Connection, Folder, GET, Http2, Proxy, Reloaded, refusing, serve};

fn object(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(value.is_object(), "{line}");
    // If two names are equal, a parser takes either.
    let names = line.matches("\"target\":").count();
    assert!(names <= 1, "{line}");
    value
}

/// Returns the next line of the access log, as JSON.
fn access(proxy: &Proxy) -> Value {
    let value = object(&proxy.error());
    assert_eq!(value["message"], "request", "{value}");
    value
}

#[test]
fn a_line_of_json_for_each_request() {
    let proxy = Proxy::start("--limit 2/h --log json --access-log --trust-proxy 127.0.0.1");
    let mut client = proxy.connect();
    let forwarded = "X-Forwarded-For: 203.0.113.7\r\n";
    for (path, status) in [("/a?b=c", 200), ("/", 200), ("/refused", 429)] {
        let reply = client.get_with(path, forwarded);
        assert_eq!(reply.status, status);
        let line = access(&proxy);
        assert_eq!(line["client"], "203.0.113.7", "{line}");
        assert_eq!((&line["method"], &line["target"]), (&"GET".into(), &path.into()), "{line}");
        assert_eq!((&line["status"], &line["bytes"]), (&status.into(), &reply.body.len().into()), "{line}");
        assert_eq!(line["version"], "HTTP/1.1");
        assert!(line["duration_ms"].as_f64().is_some_and(|time| time >= 0.0), "{line}");
        assert_eq!((&line["level"], line["timestamp"].is_string()), (&"INFO".into(), true), "{line}");
    }
    // The target has the same form in HTTP/2.
    assert_eq!(Http2::connect(proxy.address).get("/h2?x").status, 200);
    let line = access(&proxy);
    assert_eq!((&line["target"], &line["version"]), (&"/h2?x".into(), &"HTTP/2.0".into()), "{line}");
}

#[test]
fn a_line_of_text_for_each_request() {
    let proxy = Proxy::start("--limit none --access-log");
    let reply = proxy.get("/path\"1\"?q");
    let line = proxy.error();
    for part in [
        " INFO request client=127.0.0.1 method=GET target=\"/path\\\"1\\\"?q\" ",
        " status=200 ",
        &format!(" bytes={} ", reply.body.len()),
        " duration_ms=",
    ] {
        assert!(line.contains(part), "{part:?} in {line}");
    }
}

#[test]
fn a_target_forges_no_line_and_no_escape_sequence() {
    let targets = [
        "/\"}\\n{\"client\":\"6.6.6.6\"",
        "/a\"b\\c status=200",
        // CSI and a right-to-left override, as bytes that are UTF-8, and DEL.
        "/\u{9b}31mred",
        "/\u{202e}txt",
        "/\u{7f}x",
        "/caf\u{e9}",
        "/%0a%1b[31m",
        // These bytes are not HTTP.
        "/\u{1b}[31mred",
        "/\u{0}\u{8}",
    ];
    for format in ["json", "text"] {
        let proxy = Proxy::start(&format!("--limit none --access-log --log {format}"));
        for target in targets {
            let target = target.replace(' ', "%20");
            let reply = proxy.connect().send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            if reply.status == 400 {
                continue;
            }
            let line = proxy.error();
            assert!(line.chars().all(|char| (' '..='~').contains(&char)), "{line:?}");
            if format == "json" {
                let value = object(&line);
                assert_eq!((&value["message"], &value["client"]), (&"request".into(), &"127.0.0.1".into()));
                let logged = value["target"].as_str().expect("a text");
                let plain = target.chars().all(|char| char.is_ascii_graphic());
                assert!(!plain || logged == target, "{logged}");
            } else {
                // The last quote closes the quote of the field.
                assert_eq!(line.matches(" client=").count(), 1, "{line}");
                let rest = line.split_once(" target=\"").expect("a target").1;
                let mut escaped = false;
                let end = rest.find(|char| {
                    let ends = char == '"' && !escaped;
                    escaped = char == '\\' && !escaped;
                    ends
                });
                assert!(rest[end.expect("a quote")..].starts_with("\" version="), "{line}");
            }
        }
        // The next line is that of the next request.
        proxy.get("/end");
        assert!(proxy.error().contains("/end"));
    }
}

#[test]
fn a_method_and_a_host_forge_nothing() {
    let proxy = Proxy::start("--limit none --access-log --log json");
    let reply = proxy.connect().send("A|B^`~!#$%&'*+- / HTTP/1.1\r\nHost: a\r\n\r\n");
    if reply.status != 400 {
        assert_eq!(access(&proxy)["method"], "A|B^`~!#$%&'*+-");
    }
    for method in ["G\u{1b}[31mET", "G\"ET", "G\u{9b}ET"] {
        let reply = proxy.connect().send(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(reply.status, 400, "{method:?}");
    }
    proxy.get("/end");
    assert_eq!(access(&proxy)["target"], "/end");
}

#[test]
fn a_client_that_leaves_has_a_line() {
    let (upstream, proxy) = Proxy::held("--access-log --log json");
    let client = proxy.write("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    let _held = upstream.next();
    drop(client);
    let line = access(&proxy);
    assert_eq!((&line["target"], &line["status"]), (&"/left".into(), &Value::Null), "{line}");
    assert_eq!(line["end"], "Dropped", "{line}");
}

#[test]
fn errors_of_upstreams_are_logged_with_their_name() {
    let closed = refusing();
    let silent = serve(|mut connection| while connection.request().is_some() {});
    let cut = serve(|mut connection| {
        connection.request();
        connection.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    for (url, status) in [(&closed, 502), (&silent, 504), (&serve(leave), 502), (&cut, 200)] {
        let time_out = if status == 504 { "50ms" } else { "1h" };
        let proxy = Proxy::over(url, &format!("--log json --timeout response_head={time_out}"));
        // The client stays until the line is there: else a response that is cut is its fault.
        let mut client = proxy.connect();
        let head = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(head.status, status);
        let line = object(&proxy.error());
        let level = if *url == closed { "ERROR" } else { "WARN" };
        assert_eq!((&line["level"], &line["upstream"]), (&level.into(), &url.as_str().into()), "{line}");
        assert!(line["message"].as_str().is_some_and(|text| text.contains("upstream")), "{line}");
    }
}

/// Reads a request, and closes the connection.
fn leave(mut connection: Connection) {
    connection.request();
}

/// Each fault is one line, and a fault of the client is not a fault of an upstream.
/// A broken upstream fails each request. The metrics count all of them.
#[test]
fn errors_of_an_upstream_are_a_few_lines_a_second() {
    let (proxy, begin) = (Proxy::over(&serve(leave), ""), Instant::now());
    let mut client = proxy.connect();
    for _ in 0..300 {
        assert_eq!(client.get("/").status, 502);
    }
    assert_eq!(proxy.count("upstream_errors"), 300);
    let most = 10 + 5 * (1 + begin.elapsed().as_secs() as usize);
    let lines = proxy.last_words();
    let failed = lines.iter().filter(|line| line.contains("the upstream failed")).count();
    assert!((10..=most).contains(&failed), "{failed} lines, and {most} may be");
}

#[test]
fn a_broken_upload_is_no_error_of_the_upstream() {
    // It does not respond before the body ends.
    let reading = serve(|mut connection| drop(connection.rest()));
    let proxy = Proxy::over(&reading, "--log json --access-log");
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\nzz\r\n";
    let mut client = proxy.write(chunked);
    assert_eq!(client.read().status, 400);
    assert_eq!(access(&proxy)["status"], 400);
}

#[test]
fn a_reload_changes_the_log() {
    let proxy = Reloaded::start("[log]\nformat = \"text\"\naccess = false\n");
    assert_eq!(proxy.get("/silent").status, 200);
    proxy.read("[log]\nformat = \"json\"\naccess = true\n");
    assert_eq!(proxy.get("/json").status, 200);
    assert_eq!(access(&proxy)["target"], "/json");
    proxy.read("[log]\nformat = \"text\"\n");
    assert_eq!(proxy.get("/text").status, 200);
    let line = proxy.error();
    assert!(line.contains(" INFO request ") && line.contains("\"/text\""), "{line}");
}

/// A handshake that fails is not worth a line: scanners make thousands.
#[test]
fn a_failed_handshake_is_counted_and_not_logged() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let proxy = Proxy::start(&format!("--limit none --access-log {}", certificate.options(&folder)));
    proxy.write(GET);
    proxy.await_count("tls_handshake_errors", 1);
    let mut client = certificate.connect(proxy.address).expect("the proxy has this certificate");
    assert_eq!(client.get("/").status, 200);
    assert!(proxy.error().contains(" INFO request "));
}
