//! The life of connections: their age, the stop, and the answers of HTTP.

use futures_util::FutureExt;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::body::Body;

use super::super::front::Protocol;
use super::super::http::asked_in_parts;
use super::super::messages::{Code, HealthCheckRequest, RateLimitResponse};
use super::client::{Client, PLACES, SHOULD_RATE_LIMIT, WATCH, framed, request, serve};
use super::{SHOP, source};
use tollgate_common::testing::Folder;

const PATIENCE: Duration = Duration::from_secs(60);

fn shop() -> Folder {
    let folder = Folder::new();
    std::fs::write(folder.path("shop.yaml"), SHOP).unwrap();
    folder
}

#[tokio::test]
async fn a_connection_of_some_age_is_told_to_go_away() {
    let folder = shop();
    let server = serve(Protocol::Grpc, &folder.path("shop.yaml"), &[("GRPC_MAX_CONNECTION_AGE", "1s")]);
    let mut client = Client::connect(&server).await;
    let ask = request("shop", &[("account", "a")]);
    assert_eq!(client.call::<RateLimitResponse>(SHOULD_RATE_LIMIT, &ask).await.0, 0);
    let ended = timeout(PATIENCE, &mut client.connection).await.expect("it ends at its age");
    ended.unwrap().expect("it ends by GOAWAY, and not by a reset");
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_answers_whole() {
    let folder = shop();
    let server = serve(Protocol::Grpc, &folder.path("shop.yaml"), &[]);
    let mut client = Client::connect(&server).await;
    let ask = request("shop", &[("account", "a")]);
    assert_eq!(client.call::<RateLimitResponse>(SHOULD_RATE_LIMIT, &ask).await.0, 0);
    server.stop.send(()).unwrap();
    // Until the silence after the stop is over, calls are answered.
    assert_eq!(client.call::<RateLimitResponse>(SHOULD_RATE_LIMIT, &ask).await.0, 0);
    let ended = timeout(PATIENCE, client.connection).await.expect("it ends with the stop");
    ended.unwrap().expect("it ends by GOAWAY, and not by a reset");
    assert!(server.serving.await.unwrap(), "each call was answered");
}

/// Connections without a call, and with a `Watch` alone, take all places.
#[tokio::test]
async fn newcomers_take_the_places_of_idle_connections_at_once() {
    let folder = shop();
    let server = serve(Protocol::Grpc, &folder.path("shop.yaml"), &[]);
    let (mut silent, mut watching) = (Vec::new(), Vec::new());
    for _ in 0..PLACES / 2 {
        silent.push(TcpStream::connect(server.at).await.unwrap());
        let mut client = Client::connect(&server).await;
        let mut watch = client.send(WATCH, &[], framed(&HealthCheckRequest::default())).await;
        watch.body_mut().frame().await.unwrap().unwrap();
        watching.push((client, watch));
    }
    let ask = request("shop", &[("account", "a")]);
    let newcomers = async {
        let mut served = Vec::new();
        for _ in 0..PLACES {
            let mut client = Client::connect(&server).await;
            assert_eq!(client.call::<RateLimitResponse>(SHOULD_RATE_LIMIT, &ask).await.0, 0);
            served.push(client);
        }
    };
    timeout(PATIENCE, newcomers).await.expect("none waits a second for its place");
    for (mut client, _) in watching {
        let ended = timeout(PATIENCE, &mut client.connection).await;
        assert!(ended.is_ok(), "it gave its place up");
    }
}

/// Sends the bytes of a request, and reads to the end of the connection.
async fn exchange(at: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    // The server may answer before it has read all. It reads the rest, so that no answer is lost.
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends").unwrap();
    String::from_utf8(answer).unwrap()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .into()
}

#[tokio::test]
async fn http_answers_json_health_and_nothing_else() {
    let folder = shop();
    let server = serve(Protocol::Http, &folder.path("shop.yaml"), &[]);
    let ask = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "account", "value": "a"}]}]}"#;
    for status in ["200 OK", "200 OK", "429 Too Many Requests"] {
        let answer = exchange(server.at, &post("/json", ask)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n")),
            "{answer}"
        );
    }
    let long = format!("{ask}{}", " ".repeat(4 << 20));
    let answer = exchange(server.at, &post("/json", &long)).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"overallCode\":\"OVER_LIMIT\"}"), "{answer}");
    for (body, why) in [
        ("", "this is no JSON: EOF while parsing a value at line 1 column 0"),
        ("}", "this is no JSON: expected value at line 1 column 1"),
        (r#"{"domain": "shop"}"#, "rate limit descriptor list must not be empty"),
        (r#"{"domain": ""}"#, "rate limit domain must not be empty"),
        ("{\"\u{e9}\": 1}", "a request has no field ``"),
    ] {
        let answer = exchange(server.at, &post("/json", body)).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"),
            "{answer}"
        );
        assert!(answer.contains(&format!("\r\nx-tollgate-error: {why}\r\n")), "{answer}");
        assert!(answer.ends_with("\r\n\r\nBad Request\n"), "{answer}");
    }
    let healthy = exchange(server.at, &post("/healthcheck", "")).await;
    assert!(healthy.starts_with("HTTP/1.1 200 OK") && healthy.ends_with("\r\n\r\nOK"), "{healthy}");
    assert!(exchange(server.at, &post("/nothing", "")).await.starts_with("HTTP/1.1 404 Not Found"));
    for length in [64 << 10, 8 << 20] {
        let head = format!("GET /healthcheck HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(length));
        assert!(exchange(server.at, head.as_bytes()).await.starts_with("HTTP/1.1 431"), "a head has 64 KiB");
    }
    assert_eq!(exchange(server.at, b"GET / HTTP/1.1\r\nHost:").await, "", "a head has 5 s");
}

/// A client sends 3 MiB behind the refusal of its first 5 MiB, and 8 MiB of a body that none reads.
#[tokio::test]
async fn who_sends_a_body_behind_its_answer_is_not_cut_off() {
    let folder = shop();
    let server = serve(Protocol::Http, &folder.path("shop.yaml"), &[]);
    let part = vec![b' '; 1 << 20];
    for (path, begun) in [("/json", 5), ("/check/a", 0)] {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 8 << 20);
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..begun {
            stream.write_all(&part).await.unwrap();
        }
        assert_eq!(stream.read_u8().await.unwrap(), b'H', "the answer comes first");
        for _ in begun..8 {
            stream.write_all(&part).await.expect(path);
        }
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it ends").expect(path);
        assert!(answer.starts_with(if begun > 0 { b"TTP/1.1 429" } else { b"TTP/1.1 404" }), "{path}");
    }
}

/// A path with too many readings is asked for under each rule.
#[test]
fn a_check_of_too_many_readings_is_refused() {
    for (number, shadow, code) in [
        (1_025, "false", Code::Ok),
        (4_096, "false", Code::Ok),
        (4_097, "false", Code::OverLimit),
        (4_097, "true", Code::Ok),
    ] {
        let folder = shop();
        let source = source(&folder.path("shop.yaml"), &[("SHADOW_MODE", shadow)]);
        source.load().unwrap();
        let mut message = request("shop", &[("other", "a")]);
        message.descriptors = vec![message.descriptors[0].clone(); number];
        let answer = asked_in_parts(&source.service, &message).now_or_never().unwrap().unwrap();
        let asked = if number > 4_096 { 0 } else { number };
        assert_eq!((answer.overall_code(), answer.statuses.len()), (code, asked), "{number} {shadow}");
    }
}

/// hyper leaves the body of such an answer in, which ends the stream of a client.
#[tokio::test]
async fn an_answer_to_head_over_http2_has_no_body() {
    let folder = shop();
    let server = serve(Protocol::Http, &folder.path("shop.yaml"), &[]);
    let io = TokioIo::new(TcpStream::connect(server.at).await.unwrap());
    let (mut sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for (path, status) in [("/healthcheck", 200), ("/nothing", 404)] {
        let request = Request::head(format!("http://localhost{path}")).body(Body::empty()).unwrap();
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), status);
        assert_eq!(answer.into_body().collect().await.expect("whole").to_bytes(), "");
    }
}

#[tokio::test]
async fn prometheus_has_a_listener_of_its_own() {
    let folder = shop();
    let server = serve(Protocol::Prometheus, &folder.path("shop.yaml"), &[("PROMETHEUS_PATH", "/m")]);
    let answer = exchange(server.at, &post("/m", "")).await;
    assert!(answer.contains("ratelimit_service_config_load_success 1\n"), "{answer}");
    assert!(exchange(server.at, &post("/metrics", "")).await.starts_with("HTTP/1.1 404"));
}
