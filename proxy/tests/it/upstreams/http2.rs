//! Requests to an upstream of HTTP/2.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::join_all;
use hyper::body::Bytes;
use hyper::{Method, Response, Version};

use crate::support::{
    Asked, Http2, Http2Upstream, Proxy, Reloaded, UPGRADE, block_on, call, get, next, serve, trailers,
};
use tollgate_testing::wire::text;

#[test]
fn a_request_of_http1_becomes_one_of_http2() {
    for (options, host) in [("", None), ("--preserve-host", Some("a.example"))] {
        let mut upstream = Http2Upstream::start();
        let proxy = upstream.proxy(options);
        let mut client = proxy.connect();
        let head = "Connection: keep-alive, x-hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nTE: trailers, gzip\r\n\
                    Upgrade: h2c\r\nTransfer-Encoding: chunked\r\nCookie: a=1\r\nX-Own: 2\r\n";
        client.write(&format!("POST /a?b HTTP/1.1\r\nHost: a.example\r\n{head}\r\n3\r\none\r\n0\r\n\r\n"));
        block_on(async {
            let mut asked = upstream.asked().await;
            let own = upstream.address.to_string();
            let (head, body) = (asked.request.uri().clone(), asked.request.headers().clone());
            assert_eq!((asked.request.method(), asked.request.version()), (&Method::POST, Version::HTTP_2));
            assert_eq!(head.to_string(), format!("http://{}/a?b", host.unwrap_or(&own)));
            for name in ["host", "connection", "keep-alive", "x-hop", "upgrade", "transfer-encoding"] {
                assert!(!body.contains_key(name), "{name} in {body:?}");
            }
            for (name, value) in [("te", "trailers"), ("cookie", "a=1"), ("x-own", "2")] {
                assert_eq!(body[name], value);
            }
            assert_eq!(body["x-forwarded-host"], "a.example");
            assert_eq!(next(asked.request.body_mut()).await.expect("a part").expect("whole"), "one");
            let end = next(asked.request.body_mut()).await;
            assert!(end.is_none_or(|part| part.expect("whole").is_empty()));
            asked.answer("hello");
        });
        let response = client.read();
        assert_eq!((response.status, &*response.body), (200, "hello"));
        assert!(response.header("via").is_some_and(|via| via.starts_with("2.0 ")), "{response:?}");
        assert!(response.header("connection").is_none());
    }
}

/// Sends requests that are all under way at once, and returns the connections over which they came.
fn connections(mut upstream: Http2Upstream, requests: usize) -> Vec<usize> {
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        let asks = join_all((0..requests).map(|_| client.ask(get("/"))));
        let answers = async {
            let mut all = Vec::new();
            for _ in 0..requests {
                all.push(upstream.asked().await);
            }
            all.iter_mut().for_each(|asked| asked.answer("own"));
            all.iter().map(|asked| asked.connection).collect()
        };
        let (responses, connections): (_, Vec<usize>) = tokio::join!(asks, answers);
        assert!(responses.into_iter().all(|response| response.expect("no reset").body == "own"));
        connections
    })
}

#[test]
fn requests_share_a_connection_until_it_is_full() {
    assert_eq!(connections(Http2Upstream::start(), 50), [0; 50]);
    // This upstream takes two streams a connection.
    let mut two_each = connections(Http2Upstream::start_with(None, 2), 5);
    two_each.sort_unstable();
    assert_eq!(two_each, [0, 0, 1, 1, 2]);
}

#[test]
fn a_stream_passes_both_ways_at_once_with_its_trailers() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        let (response, mut up) = client.begin(call("/chat"), false).await;
        let mut asked = upstream.asked().await;
        assert_eq!(asked.request.headers()["te"], "trailers");
        // The head of the response comes before the first byte of the request.
        let mut down = asked.begin();
        let mut from_upstream = response.await.expect("a head").into_body();
        for word in ["one", "two", "three"] {
            up.send_data(Bytes::from(word), false).expect("it is open");
            assert_eq!(next(asked.request.body_mut()).await.expect("a part").expect("whole"), word);
            down.send_data(Bytes::from(word), false).expect("it is open");
            assert_eq!(next(&mut from_upstream).await.expect("a part").expect("whole"), word);
        }
        let mut last = trailers("x-up", "1");
        // An upstream may merge them into the head.
        let forged = ["content-length", "x-forwarded-for", "x-real-ip", "host", "via", "cookie"];
        forged.into_iter().for_each(|name| last.extend(trailers(name, "7")));
        up.send_trailers(last).expect("it is open");
        assert!(next(asked.request.body_mut()).await.is_none());
        let seen = asked.request.body_mut().trailers().await.expect("whole").expect("trailers");
        assert_eq!(seen, trailers("x-up", "1"));
        down.send_trailers(trailers("grpc-status", "0")).expect("it is open");
        assert!(next(&mut from_upstream).await.is_none());
        let seen = from_upstream.trailers().await.expect("whole").expect("trailers");
        assert_eq!(seen, trailers("grpc-status", "0"));
    });
}

/// A client that does not read its responses has the window of its streams, and no more.
#[test]
fn responses_that_wait_for_their_client_stop_no_other() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let [slow, other] = [(); 2].map(|()| Http2::connect(proxy.address));
    block_on(async {
        let mut waiting = Vec::new();
        for _ in 0..60 {
            waiting.push(slow.begin(get("/large"), true).await);
            let mut asked = upstream.asked().await;
            assert_eq!(asked.connection, 0);
            let mut body = asked.begin();
            body.send_data(vec![b'x'; 8 << 20].into(), true).expect("it is open");
        }
        let (response, _) = tokio::join!(other.ask(get("/small")), upstream.answer("own"));
        assert_eq!(response.expect("no reset").body, "own");
    });
}

#[test]
fn a_stream_goes_on_over_a_reload_and_a_stop() {
    let mut upstream = Http2Upstream::start();
    let text = format!("upstream = \"h2c://{}\"\n", upstream.address);
    let proxy = Reloaded::start(&text);
    let client = Http2::connect(proxy.address);
    let ((response, mut up), mut asked) =
        block_on(async { (client.begin(call("/chat"), false).await, upstream.asked().await) });
    proxy.read(&format!("{text}limit = \"5/s\"\n"));
    let mut down = asked.begin();
    let mut body = block_on(response).expect("a head").into_body();
    proxy.signal("-TERM");
    proxy.line_with("draining");
    block_on(async {
        up.send_data(Bytes::from("last"), true).expect("it is open");
        assert_eq!(next(asked.request.body_mut()).await.expect("a part").expect("whole"), "last");
        down.send_data(Bytes::from("own"), false).expect("it is open");
        assert_eq!(next(&mut body).await.expect("a part").expect("whole"), "own");
        down.send_trailers(trailers("grpc-status", "0")).expect("it is open");
        assert!(next(&mut body).await.is_none());
    });
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn an_upstream_without_http2_is_an_error() {
    let http1 = serve(|mut connection| {
        let _ = connection.try_write("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let response = Proxy::over(&http1.replace("http", "h2c"), "").get("/");
    assert_eq!((response.status, &*response.body), (502, "Bad gateway: the upstream cannot be reached.\n"));
}

#[test]
fn an_upstream_of_http2_alone_takes_no_upgrade() {
    let upstream = Http2Upstream::start();
    assert_eq!(upstream.proxy("").connect().send(UPGRADE).status, 501);
}

/// A response of HTTP/2 becomes one of HTTP/1.1, or an error.
#[test]
fn an_odd_response_of_http2_is_an_error() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let odd = [
        ("a body longer than its length", Response::builder().header("content-length", "2")),
        ("a body shorter than its length", Response::builder().header("content-length", "9")),
        ("two lengths", Response::builder().header("content-length", "5").header("content-length", "9")),
    ];
    for (name, head) in odd {
        let mut client = proxy.write("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let mut asked = block_on(upstream.asked());
        let head = head.body(()).expect("valid");
        let sent =
            asked.respond.send_response(head, false).map(|mut body| body.send_data("12345".into(), true));
        // Without a head, the connection has ended.
        let Some(response) = client.try_head().filter(|head| head.status != 502) else {
            continue;
        };
        // The connection ends before the end that the head tells.
        assert!(response.status == 200 && sent.is_ok(), "{name}: {response:?}");
        let rest = text(&client.rest());
        assert!(!rest.contains("HTTP/1.1") && rest.len() <= 5, "{name}: {rest:?}");
    }
}

/// Answers with a head of this many bytes. The proxy may have closed the connection.
fn answer_at_length(asked: &mut Asked, bytes: usize) {
    let head = Response::builder().header("x-long", "x".repeat(bytes)).body(());
    let _ = asked.respond.send_response(head.expect("a valid head"), true);
}

#[test]
fn a_head_that_is_too_long_fails_its_own_request() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        for bytes in [70_000, 200_000, 900_000] {
            let (other, _up) = client.begin(get("/other"), true).await;
            let mut waiting = upstream.asked().await;
            let (long, ()) = tokio::join!(client.ask(get("/long")), async {
                answer_at_length(&mut upstream.asked().await, bytes);
            });
            assert_eq!(long.expect("a status").status, 502, "{bytes}");
            waiting.answer("own");
            assert_eq!(other.await.expect("no reset").status(), 200, "{bytes}");
        }
    });
}

/// h2 ends a connection by such a head, with all of its streams.
#[test]
fn a_response_that_ends_its_connection_fails_no_request_but_its_own() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        let mut asks = pin!(join_all((0..20).map(|_| client.ask(get("/other")))));
        let bad = client.ask(get("/bad"));
        let answers = async {
            let mut all = Vec::new();
            for _ in 0..21 {
                all.push(upstream.asked().await);
            }
            let is_bad = |asked: &Asked| asked.request.uri().path() == "/bad";
            answer_at_length(all.iter_mut().find(|asked| is_bad(asked)).expect("one is bad"), 2 << 20);
            // Each is sent again.
            let mut again = Vec::new();
            for _ in 0..21 {
                again.push(upstream.asked().await);
            }
            answer_at_length(again.iter_mut().find(|asked| is_bad(asked)).expect("one is bad"), 2 << 20);
            again
        };
        let (bad, mut again) = tokio::select! {
            _ = asks.as_mut() => panic!("no other is answered before the bad one"),
            done = async { tokio::join!(bad, answers) } => done,
        };
        assert_eq!(bad.expect("a status").status, 502);
        again.iter_mut().filter(|asked| asked.request.uri().path() != "/bad").for_each(|it| it.answer("own"));
        for response in asks.await {
            assert_eq!(response.expect("no reset").body, "own");
        }
        // From then on, fewer requests share a connection.
        let asks = join_all((0..40).map(|_| client.ask(get("/"))));
        let answers = async {
            let mut shared = BTreeMap::<usize, usize>::new();
            let mut all = Vec::new();
            for _ in 0..40 {
                let asked = upstream.asked().await;
                *shared.entry(asked.connection).or_default() += 1;
                all.push(asked);
            }
            all.iter_mut().for_each(|asked| asked.answer("own"));
            shared
        };
        let (responses, shared) = tokio::join!(asks, answers);
        assert!(responses.into_iter().all(|response| response.is_ok()));
        assert!(shared.values().all(|requests| *requests <= 25), "{shared:?}");
    });
}
