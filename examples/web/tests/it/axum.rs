// promise: layer
//! The layer in a router: attached in any way, it is one limit, and takes nothing from a request.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, RateLimitLayer};

use crate::support::{Client, PATIENCE, serve, status};

type Layer = RateLimitLayer<std::net::IpAddr>;

/// A layer of this number of requests an hour for each address: no token comes back in a test.
fn hourly(requests: u64) -> Layer {
    RateLimitLayer::builder(RateLimiter::new(Quota::per_hour(requests)))
        .key(ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip()))
        .build()
}

/// Sends requests to the paths in turn, over some connections at once. Returns the numbers of
/// served and of refused ones.
async fn flood(app: Router, paths: &'static [&'static str], requests: usize) -> (usize, usize) {
    const CONNECTIONS: usize = 8;
    let address = serve(app).await;
    let mut clients = JoinSet::new();
    for first in 0..CONNECTIONS {
        let address = address.clone();
        clients.spawn(async move {
            let (mut client, mut counts) = (Client::connect(&address).await, (0, 0));
            for number in (first..requests).step_by(CONNECTIONS) {
                match status(&client.get(paths[number % paths.len()]).await) {
                    200 => counts.0 += 1,
                    429 => counts.1 += 1,
                    other => panic!("status {other}"),
                }
            }
            counts
        });
    }
    let counts = clients.join_all().await;
    counts.into_iter().fold((0, 0), |(served, refused), (s, r)| (served + s, refused + r))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_layer_on_several_routes_counts_them_together() {
    let layer = hourly(5);
    let hello = || get(|| async { "hello\n" });
    let app = Router::new()
        .route("/a", hello().layer(layer.clone()))
        .route("/b", hello().route_layer(layer.clone()))
        .nest("/c", Router::new().route("/d", hello()).layer(layer.clone()))
        .merge(Router::new().route("/e", hello()).route_layer(layer.clone()));
    assert_eq!(flood(app, &["/a", "/b", "/c/d", "/e"], 1_500).await, (5, 1_495));
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.keys), (5, 1_495, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_on_a_whole_router_counts_once_a_request() {
    let layer = hourly(5);
    let hello = || get(|| async { "hello\n" });
    let app = Router::new().route("/a", hello()).route("/b", hello().layer(layer.clone()));
    let app = app.layer(layer.clone());
    assert_eq!(flood(app, &["/a", "/b"], 1_500).await, (5, 1_495));
    // The inner layer counts no request that the outer one has counted.
    assert_eq!(layer.stats().granted, 5);
}

/// Echoes the bytes of a connection that is no longer one of HTTP.
async fn echo(mut request: Request) -> Response {
    if request.extensions().get::<hyper::upgrade::OnUpgrade>().is_none() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
        tokio::io::copy(&mut read, &mut write).await
    });
    (StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")]).into_response()
}

/// The head of a response, as it is on the wire.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the head ends"));
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn an_upgrade_is_left_alone() {
    let address = serve(Router::new().route("/", get(echo)).layer(hourly(1))).await;
    let ask = b"GET / HTTP/1.1\r\nhost: example.test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let conversation = async {
        let mut stream = BufReader::new(TcpStream::connect(&address).await.unwrap());
        stream.write_all(ask).await.unwrap();
        let first = head(&mut stream).await;
        assert!(first.starts_with("HTTP/1.1 101 "), "{first}");
        assert!(first.contains("ratelimit: \"default\";r=0;t="), "{first}");
        stream.write_all(b"not HTTP").await.unwrap();
        let mut back = [0; 8];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"not HTTP");

        // Another has none left, and its connection stays one of HTTP.
        let mut stream = BufReader::new(TcpStream::connect(&address).await.unwrap());
        for _ in 0..2 {
            stream.write_all(ask).await.unwrap();
            let refused = head(&mut stream).await;
            assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        }
    };
    tokio::time::timeout(PATIENCE, conversation).await.expect("nobody waits for ever");
}
