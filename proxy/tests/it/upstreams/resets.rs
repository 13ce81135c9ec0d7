//! Streams that one side resets, and requests that an upstream refuses.

use std::future::poll_fn;

use h2::Reason;
use hyper::Request;
use hyper::body::Bytes;

use crate::support::{Asked, GET, Http2, Http2Upstream, block_on, call, get, next};

/// Returns the reason for which the proxy has reset the stream of a request.
async fn reset(asked: &mut Asked) -> Reason {
    poll_fn(|context| asked.respond.poll_reset(context)).await.expect("the connection is open")
}

#[test]
fn a_reset_of_the_client_reaches_the_upstream() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        // While the request goes on, and after its end: before the head of the response, and then.
        for (request, is_whole) in [(call("/"), false), (get("/"), true)] {
            let (_response, mut up) = client.begin(request, is_whole).await;
            let mut asked = upstream.asked().await;
            up.send_reset(Reason::CANCEL);
            assert_eq!(reset(&mut asked).await, Reason::CANCEL);
        }
        for (request, is_whole, reason) in [
            (call("/"), false, Reason::CANCEL),
            (call("/"), false, Reason::INTERNAL_ERROR),
            (get("/"), true, Reason::CANCEL),
        ] {
            let (response, mut up) = client.begin(request, is_whole).await;
            let mut asked = upstream.asked().await;
            let mut down = asked.begin();
            let _body = response.await.expect("a head");
            up.send_reset(reason);
            assert_eq!(poll_fn(|context| down.poll_reset(context)).await.expect("open"), reason);
        }
    });
}

#[test]
fn a_client_that_leaves_resets_its_streams() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = proxy.write(GET);
    let mut asked = block_on(upstream.asked());
    drop(client);
    assert_eq!(block_on(reset(&mut asked)), Reason::CANCEL);
}

#[test]
fn a_reset_of_the_upstream_reaches_the_client() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        for reason in [Reason::CANCEL, Reason::ENHANCE_YOUR_CALM] {
            // After the head.
            for request in [call("/"), get("/")] {
                let (response, _up) = client.begin(request, true).await;
                let mut down = upstream.asked().await.begin();
                let mut body = response.await.expect("a head").into_body();
                down.send_reset(reason);
                let error = next(&mut body).await.expect("no end").expect_err("no part");
                assert_eq!(error.reason(), Some(reason));
            }
            // Before the head: gRPC has codes for resets, and other clients know a status.
            let resets = async { upstream.asked().await.respond.send_reset(reason) };
            let (response, ()) = tokio::join!(client.ask(call("/")), resets);
            assert_eq!(response.expect_err("a reset").reason(), Some(reason));
            let resets = async { upstream.asked().await.respond.send_reset(reason) };
            let (response, ()) = tokio::join!(client.ask(get("/")), resets);
            assert_eq!(response.expect("a status").status, 502);
        }
    });
}

#[test]
fn a_request_that_the_upstream_refuses_is_sent_again_once() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let client = Http2::connect(proxy.address);
    block_on(async {
        let post = || Request::post("http://a.example/").body(()).expect("valid");
        for request in [get("/"), post()] {
            let answers = async {
                upstream.asked().await.respond.send_reset(Reason::REFUSED_STREAM);
                upstream.asked().await.answer("own");
            };
            let (response, ()) = tokio::join!(client.ask(request), answers);
            let response = response.expect("no reset");
            assert_eq!((response.status, &*response.body), (200, "own"));
        }
        let refuses = async {
            for _ in 0..2 {
                upstream.asked().await.respond.send_reset(Reason::REFUSED_STREAM);
            }
        };
        let (response, ()) = tokio::join!(client.ask(post()), refuses);
        assert_eq!(response.expect("a status").status, 502);
        // The body of a request is gone by then.
        let (response, mut up) = client.begin(call("/"), false).await;
        up.send_data(Bytes::from("part"), false).expect("it is open");
        upstream.asked().await.respond.send_reset(Reason::REFUSED_STREAM);
        let response = response.await.expect("trailers");
        assert_eq!(response.headers()["grpc-status"], "14");
    });
}

#[test]
fn a_connection_whose_upstream_says_goodbye_ends_with_its_streams() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("");
    let [first, other] = [(); 2].map(|()| Http2::connect(proxy.address));
    block_on(async {
        let (response, _up) = first.begin(call("/"), true).await;
        let mut asked = upstream.asked().await;
        let mut down = asked.begin();
        let mut body = response.await.expect("a head").into_body();
        upstream.say_goodbye();
        // The proxy may get a request in before it reads of the goodbye.
        loop {
            let (response, connection) = tokio::join!(other.ask(get("/")), upstream.answer("own"));
            assert_eq!(response.expect("no reset").body, "own");
            if connection == 1 {
                break;
            }
        }
        down.send_data(Bytes::from("last"), true).expect("it is open");
        assert_eq!(next(&mut body).await.expect("a part").expect("whole"), "last");
        assert!(next(&mut body).await.is_none());
    });
}

/// The upstream reads, and answers nothing.
#[test]
fn a_silent_connection_takes_no_other_request() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("--timeout response_head=500ms");
    let client = Http2::connect(proxy.address);
    block_on(async {
        let (response, asked) = tokio::join!(client.ask(get("/")), upstream.asked());
        assert_eq!((response.expect("a status").status, asked.connection), (504, 0));
        assert_eq!(tokio::join!(client.ask(get("/")), upstream.answer("own")).1, 1);
    });
}

/// The proxy resets the stream to the upstream then, which is no reset by the upstream.
#[test]
fn a_fault_of_the_client_has_its_status_in_grpc() {
    let mut upstream = Http2Upstream::start();
    let proxy = upstream.proxy("--request-body 10");
    let client = Http2::connect(proxy.address);
    block_on(async {
        let (response, mut up) = client.begin(call("/"), false).await;
        let _asked = upstream.asked().await;
        up.send_data(Bytes::from("01234567890"), false).expect("it is open");
        assert_eq!(response.await.expect("trailers").headers()["grpc-status"], "8");
    });
}
