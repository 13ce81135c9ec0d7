//! The time of a request through tollgate's layer and through tower_governor's, in axum.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml --features layers --bin layers
//! ```
//!
//! Each round sends the same requests to four routers in turn: without a layer, behind each layer
//! with headers, and behind tollgate's with axum's type of body. All is in one process, without
//! sockets, on one thread.
//!
//! The first router of a round changes from round to round. The median of the rounds counts, so a
//! machine that is busy now and then does not decide.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use axum::routing::get;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, RateLimitLayer, ResponseBody};
use tower::Service;
use tower::util::MapResponseLayer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const ROUNDS: usize = 201;
/// Requests to each router in a round.
const REQUESTS: usize = 5_000;
const CLIENTS: usize = 1_000;

fn bare() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Returns a router that grants a token a nanosecond to each address.
///
/// The layer's own body, which axum boxes, is used if `boxed`, else axum's.
fn ours(boxed: bool) -> Router {
    let limiter = RateLimiter::<IpAddr>::new(Quota::per_second(1_000_000_000));
    let key = ClientIp::peer_from(|peer: &ConnectInfo<SocketAddr>| peer.0.ip());
    let layer = RateLimitLayer::builder(limiter).key(key).build();
    if boxed {
        return bare().layer(layer);
    }
    let same =
        |response: Response<ResponseBody<Body>>| response.map(|body| body.into_inner_or_else(Body::from));
    bare().layer((MapResponseLayer::new(same), layer))
}

/// Returns the same router by tower_governor.
fn theirs() -> Router {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_nanosecond(1).burst_size(1_000_000_000).use_headers().finish();
    bare().layer(GovernorLayer::new(config.expect("a quota")))
}

fn answer(router: &mut Router, client: usize) -> Response {
    let [.., high, low] = client.to_be_bytes();
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, high, low], 4711))));
    let future = pin!(<Router as Service<Request<Body>>>::call(router, request));
    let Poll::Ready(answer) = future.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("a request waits for nothing");
    };
    let answer: Result<Response, Infallible> = answer;
    answer.unwrap_or_else(|never| match never {})
}

/// Returns the nanoseconds of a request.
fn time(router: &mut Router) -> f64 {
    let begin = Instant::now();
    for request in 0..REQUESTS {
        assert_eq!(black_box(answer(router, request % CLIENTS)).status(), StatusCode::OK);
    }
    begin.elapsed().as_secs_f64() * 1e9 / REQUESTS as f64
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    tollgate::Clock::new().warm();
    let mut routers = [bare(), ours(true), ours(false), theirs()];
    let headers = ["content-type", "ratelimit", "ratelimit", "x-ratelimit-remaining"];
    for (router, header) in routers.iter_mut().zip(headers) {
        assert!(answer(router, 0).headers().contains_key(header), "{header}");
    }
    let rounds: Vec<[f64; 4]> = (0..ROUNDS)
        .map(|round| {
            let mut times = [0.0; 4];
            for turn in 0..4 {
                let which = (round + turn) % 4;
                times[which] = time(&mut routers[which]);
            }
            times
        })
        .collect();
    let names = ["no layer", "tollgate, body boxed", "tollgate, axum's body", "tower_governor"];
    for (which, name) in names.iter().enumerate() {
        let time = median(rounds.iter().map(|times| times[which]));
        let over = |times: &[f64; 4]| (times[which] - times[0]) / (times[3] - times[0]);
        let ratio = median(rounds.iter().map(over));
        println!("{name:<21} {time:6.0} ns a request, over no layer {ratio:.2} of tower_governor's");
    }
}
