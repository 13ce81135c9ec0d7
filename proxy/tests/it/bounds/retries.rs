//! Requests that are sent again, and requests that must not be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;

use super::upstreams::answering;
use crate::support::{GET, Message, OK, Proxy, Upstream, refusing, serve};

/// The number of requests for each path with a method.
type Seen = Arc<Mutex<BTreeMap<String, usize>>>;

fn note(seen: &Seen, head: &Message) {
    let asked = head.start.trim_end_matches(" HTTP/1.1").to_owned();
    *seen.lock().expect("nothing panics under it").entry(asked).or_default() += 1;
}

fn most(seen: &Seen, method: &str) -> usize {
    let seen = seen.lock().expect("nothing panics under it");
    seen.iter().filter(|(asked, _)| asked.starts_with(method)).map(|(_, times)| *times).max().unwrap_or(0)
}

/// Starts an upstream that closes each connection after a response: without notice, or once a
/// second request has arrived on it.
fn closing(at_the_second_request: bool) -> (String, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let url = serve(move |mut connection| {
        let Some(request) = connection.request() else { return };
        note(&noted, &request);
        let _ = connection.try_write(OK);
        if at_the_second_request && let Some(request) = connection.request() {
            note(&noted, &request);
        }
    });
    (url, seen)
}

/// Sends 150 requests from each of four clients, each for another path. Returns the number of
/// responses of each status.
fn ask_600(proxy: &Proxy, method: &str) -> BTreeMap<u16, usize> {
    let statuses: Mutex<BTreeMap<u16, usize>> = Mutex::default();
    thread::scope(|scope| {
        for number in 0..4 {
            let (statuses, mut client) = (&statuses, proxy.connect());
            scope.spawn(move || {
                for request in 0..150 {
                    let reply =
                        client.send(&format!("{method} /{number}/{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    *statuses.lock().expect("nothing panics under it").entry(reply.status).or_default() += 1;
                }
            });
        }
    });
    statuses.into_inner().expect("nothing panics under it")
}

#[test]
fn a_get_is_sent_again_when_a_connection_that_was_kept_alive_closes() {
    for (upstream, seen) in [true, false].map(closing) {
        let proxy = Proxy::over(&upstream, "");
        assert_eq!(ask_600(&proxy, "GET"), BTreeMap::from([(200, 600)]));
        assert!(most(&seen, "GET") <= 2);
    }
}

#[test]
fn a_post_is_never_sent_twice() {
    for (upstream, seen) in [true, false].map(closing) {
        let proxy = Proxy::over(&upstream, "");
        let statuses = ask_600(&proxy, "POST");
        assert_eq!(most(&seen, "POST"), 1, "{statuses:?}");
        assert!(statuses.keys().all(|status| [200, 502].contains(status)), "{statuses:?}");
        assert!(statuses[&200] >= 300, "{statuses:?}");
    }
}

/// The upstream takes a request and does not answer it. The second `next` would see another
/// attempt.
#[test]
fn a_request_with_a_body_is_not_sent_again() {
    let (holding, proxy) = Proxy::held("");
    for (count, (head, part, rest)) in [
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n", "abc", ""),
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n", "abc", "defgh"),
        ("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n", ""),
        ("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n", "0\r\n\r\n"),
        ("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "abc", ""),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n", "abc", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = proxy.write(&format!("{head}{part}"));
        let mut held = holding.next();
        held.exactly(part.len());
        client.write(rest);
        held.exactly(rest.len());
        drop(held);
        assert_eq!(client.read().status, 502, "{head:?}");
        assert!(holding.try_next().is_none(), "{head:?}");
        proxy.assert_counts(&[("upstream_errors", count as u64 + 1)]);
    }
    // A request without a body is sent again, if its method allows that.
    for (request, attempts) in
        [("PUT", 2), ("DELETE", 2), ("OPTIONS", 2), ("HEAD", 2), ("POST", 1), ("PATCH", 1)]
    {
        let mut client = proxy.write(&format!("{request} /{attempts} HTTP/1.1\r\nHost: a\r\n\r\n"));
        for _ in 0..attempts {
            assert_eq!(holding.next().head.start, format!("{request} /{attempts} HTTP/1.1"));
        }
        assert_eq!(client.head().status, 502);
        assert!(holding.try_next().is_none(), "{request}");
    }
}

/// A chunked body of a `GET` is read first, so it is whole in another attempt.
#[test]
fn a_get_whose_body_was_read_is_sent_again_whole() {
    let (holding, proxy) = Proxy::held("");
    let mut client =
        proxy.write("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    for attempt in 0..2 {
        let mut held = holding.next();
        assert_eq!(held.head.header("content-length"), Some("3"));
        assert_eq!(held.exactly(3), b"abc");
        if attempt == 1 {
            held.write(OK);
        }
    }
    assert_eq!(client.read().body, "ok");
    proxy.assert_counts(&[("upstream_retries", 1)]);
}

#[test]
fn an_upstream_that_refuses_connections_is_passed_over() {
    let refusing = &*refusing();
    let answering = &*answering();
    for upstreams in [[refusing, answering], [answering, refusing]] {
        let proxy = Proxy::over_all(&upstreams, "");
        for _ in 0..2 {
            let mut client = proxy.connect();
            for _ in 0..30 {
                assert_eq!(client.get("/").status, 200);
                let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
                assert_eq!(client.send(post).status, 200);
            }
        }
        // The upstream is tried once a second, not by every other request.
        let retries = proxy.count("upstream_retries");
        assert!((1..30).contains(&retries), "{retries} retries");
        assert_eq!(proxy.count("upstream_errors"), 0);
    }
    let proxy = Proxy::over_all(&[refusing, refusing], "");
    for request in [GET, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"] {
        assert_eq!(proxy.connect().send(request).status, 502);
    }
    proxy.assert_counts(&[("upstream_errors", 2), ("upstream_retries", 2)]);
}

/// A chunked body is whole until a connection is made.
#[test]
fn a_chunked_body_goes_to_the_upstream_that_is_reached() {
    let holding = Upstream::holding();
    let proxy = Proxy::over_all(&[&refusing(), &holding.url()], "");
    for _ in 0..2 {
        let mut client = proxy
            .write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        let mut held = holding.next();
        assert_eq!(held.exactly(13), b"3\r\nabc\r\n0\r\n\r\n");
        // The next request takes a connection of its own: the test ends this one.
        held.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_eq!(client.read().body, "ok");
    }
}

#[test]
fn an_upstream_that_breaks_off_again_and_again_is_asked_twice() {
    let (holding, proxy) = Proxy::held("");
    for count in 1..=3 {
        let mut client = proxy.write(GET);
        for _ in 0..2 {
            holding.next().write("HTTP/1.1 200 OK\r\nX: ");
        }
        assert_eq!(client.read().status, 502);
        assert!(holding.try_next().is_none());
        proxy.assert_counts(&[("upstream_errors", count), ("upstream_retries", count)]);
    }
}
