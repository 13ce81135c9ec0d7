//! A limit beside tower-http's `CorsLayer`, in both orders, for pages of one other origin.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin cors
//! for _ in 1 2 3 4; do curl -i -H 'Origin: http://page.test' http://127.0.0.1:8080/inside; done
//! ```
//!
//! Take the limit inside of `CorsLayer`: it answers preflights itself, and lets the page read each
//! refusal. Outside of it, the limit saves its work on refused requests, but has to exempt
//! preflights, and to allow the origin itself.
//!
//! `CorsLayer::expose_headers` replaces the header of the layer inside. So one list has all names:
//! that of `LayerBuilder::expose_headers`, or that of `CorsLayer`.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ConnectInfo;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderName, HeaderValue};
use axum::http::{Method, Response};
use axum::routing::get;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{Bare, ClientIp, Exempt, RateLimitLayer, Refusal, Reject};
use tollgate_web_examples::{listen, stop};
use tower_http::cors::CorsLayer;

const PAGE: HeaderValue = HeaderValue::from_static("http://page.test");

fn cors() -> CorsLayer {
    let headers = [HeaderName::from_static("x-api-key")];
    CorsLayer::new().allow_origin(PAGE).allow_methods([Method::GET]).allow_headers(headers)
}

/// Allows the page to read a refusal, as `CorsLayer` would.
fn readable(refusal: &Refusal<'_>) -> Response<Bytes> {
    let mut response = Bare.reject(refusal);
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, PAGE);
    response
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let limit = || {
        let peer = ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip());
        RateLimitLayer::builder(RateLimiter::new(Quota::per_hour(3))).key(peer).expose_headers()
    };
    let hello = || get(|| async { "hello\n" });
    let trace_id = HeaderName::from_static("x-trace-id");

    // The last layer is the outermost.
    let inside = Router::new().route("/inside", hello()).layer(limit().build()).layer(cors());
    let outside = Router::new()
        .route("/outside", hello())
        .layer(cors().expose_headers([trace_id]))
        .layer(limit().exempt(Exempt::preflights()).reject_with(readable).build());

    let service = inside.merge(outside).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await
}
