//! Streams that one side resets, and requests that an upstream refuses.

use std::future::poll_fn;

use h2::Reason;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};

use super::NO_LIMIT;
use super::process::Proxy;
use super::support::block_on;
use super::upstream::{Asked, Upstream, ask, call, client, get, next};

fn proxy(upstream: &Upstream, options: &[&str]) -> Proxy {
    let url = format!("h2c://{}", upstream.address);
    Proxy::start(&[&["--limit", NO_LIMIT, "--upstream", &url], options].concat())
}

/// Returns the reason for which the proxy has reset the stream of a request.
async fn reset(asked: &mut Asked) -> Reason {
    poll_fn(|context| asked.respond.poll_reset(context)).await.expect("the connection is open")
}

#[test]
fn a_reset_of_the_client_reaches_the_upstream() {
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &[]);
    block_on(async {
        let client = client(proxy.address).await;
        // Before the head of the response, and while the request goes on.
        let mut other = client.clone().ready().await.expect("it is open");
        let (_response, mut up) = other.send_request(call("/"), false).expect("it is open");
        let mut asked = upstream.asked().await;
        up.send_reset(Reason::CANCEL);
        assert_eq!(reset(&mut asked).await, Reason::CANCEL);
        // The same after the head.
        for reason in [Reason::CANCEL, Reason::INTERNAL_ERROR] {
            let mut client = client.clone().ready().await.expect("it is open");
            let (response, mut up) = client.send_request(call("/"), false).expect("it is open");
            let mut asked = upstream.asked().await;
            let mut down = asked.begin();
            let _body = response.await.expect("a head");
            up.send_reset(reason);
            assert_eq!(poll_fn(|context| down.poll_reset(context)).await.expect("open"), reason);
        }
        // After the whole request.
        for begins in [false, true] {
            let mut client = client.clone().ready().await.expect("it is open");
            let (response, mut up) = client.send_request(get("/"), true).expect("it is open");
            let mut asked = upstream.asked().await;
            if begins {
                let mut down = asked.begin();
                let _body = response.await.expect("a head");
                up.send_reset(Reason::CANCEL);
                assert_eq!(poll_fn(|context| down.poll_reset(context)).await.expect("open"), Reason::CANCEL);
            } else {
                up.send_reset(Reason::CANCEL);
                assert_eq!(reset(&mut asked).await, Reason::CANCEL);
            }
        }
    });
}

#[test]
fn a_client_that_leaves_resets_its_streams() {
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &[]);
    let mut client = proxy.connect();
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut asked = block_on(upstream.asked());
    drop(client);
    assert_eq!(block_on(reset(&mut asked)), Reason::CANCEL);
}

#[test]
fn a_reset_of_the_upstream_reaches_the_client() {
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &[]);
    block_on(async {
        let client = client(proxy.address).await;
        for reason in [Reason::CANCEL, Reason::ENHANCE_YOUR_CALM] {
            // After the head.
            for request in [call("/"), get("/")] {
                let mut client = client.clone().ready().await.expect("it is open");
                let (response, _) = client.send_request(request, true).expect("it is open");
                let mut down = upstream.asked().await.begin();
                let mut body = response.await.expect("a head").into_body();
                down.send_reset(reason);
                let error = next(&mut body).await.expect("no end").expect_err("no part");
                assert_eq!(error.reason(), Some(reason));
            }
            // Before the head: gRPC has codes for resets, and other clients know a status.
            let resets = async { upstream.asked().await.respond.send_reset(reason) };
            let (response, ()) = tokio::join!(ask(&client, call("/")), resets);
            assert_eq!(response.expect_err("a reset").reason(), Some(reason));
            let resets = async { upstream.asked().await.respond.send_reset(reason) };
            let (response, ()) = tokio::join!(ask(&client, get("/")), resets);
            assert_eq!(response.expect("a status").0, StatusCode::BAD_GATEWAY);
        }
    });
}

#[test]
fn a_request_that_the_upstream_refuses_is_sent_again_once() {
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &[]);
    block_on(async {
        let client = client(proxy.address).await;
        let post = || Request::post("http://a.example/").body(()).expect("valid");
        for request in [get("/"), post()] {
            let answers = async {
                upstream.asked().await.respond.send_reset(Reason::REFUSED_STREAM);
                upstream.asked().await.answer("own");
            };
            let (response, ()) = tokio::join!(ask(&client, request), answers);
            assert_eq!(response.expect("no reset"), (StatusCode::OK, "own".to_owned()));
        }
        let refuses = async {
            for _ in 0..2 {
                upstream.asked().await.respond.send_reset(Reason::REFUSED_STREAM);
            }
        };
        let (response, ()) = tokio::join!(ask(&client, post()), refuses);
        assert_eq!(response.expect("a status").0, StatusCode::BAD_GATEWAY);
        // The body of a request is gone by then.
        let mut other = client.clone().ready().await.expect("it is open");
        let (response, mut up) = other.send_request(call("/"), false).expect("it is open");
        up.send_data(Bytes::from("part"), false).expect("it is open");
        upstream.asked().await.respond.send_reset(Reason::REFUSED_STREAM);
        let response = response.await.expect("trailers");
        assert_eq!(response.headers()["grpc-status"], "14");
    });
}

#[test]
fn a_connection_whose_upstream_says_goodbye_ends_with_its_streams() {
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &[]);
    block_on(async {
        let mut first = client(proxy.address).await.ready().await.expect("it is open");
        let (response, _) = first.send_request(call("/"), true).expect("it is open");
        let mut asked = upstream.asked().await;
        let mut down = asked.begin();
        let mut body = response.await.expect("a head").into_body();
        upstream.say_goodbye();
        // The proxy may get a request in before it reads of the goodbye.
        let other = client(proxy.address).await;
        loop {
            let answer = async {
                let mut asked = upstream.asked().await;
                asked.answer("own");
                asked.connection
            };
            let (response, connection) = tokio::join!(ask(&other, get("/")), answer);
            assert_eq!(response.expect("no reset").1, "own");
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
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &["--timeout", "response_head=500ms"]);
    block_on(async {
        let client = client(proxy.address).await;
        let (response, asked) = tokio::join!(ask(&client, get("/")), upstream.asked());
        assert_eq!((response.expect("a status").0, asked.connection), (StatusCode::GATEWAY_TIMEOUT, 0));
        let answer = async {
            let mut asked = upstream.asked().await;
            asked.answer("own");
            asked.connection
        };
        assert_eq!(tokio::join!(ask(&client, get("/")), answer).1, 1);
    });
}

/// The proxy resets the stream to the upstream then, which is no reset by the upstream.
#[test]
fn a_fault_of_the_client_has_its_status_in_grpc() {
    let mut upstream = Upstream::start();
    let proxy = proxy(&upstream, &["--request-body", "10"]);
    block_on(async {
        let mut client = client(proxy.address).await.ready().await.expect("it is open");
        let (response, mut up) = client.send_request(call("/"), false).expect("it is open");
        let _asked = upstream.asked().await;
        up.send_data(Bytes::from("01234567890"), false).expect("it is open");
        assert_eq!(response.await.expect("trailers").headers()["grpc-status"], "8");
    });
}
