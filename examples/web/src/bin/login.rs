//! A login of which only failures count. Each address may fail five times, and once more every
//! three minutes.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin login
//! curl -i -d 'open sesame' http://127.0.0.1:8080/login
//! for _ in 1 2 3 4 5 6; do curl -i -d 'guess' http://127.0.0.1:8080/login; done
//! ```
//!
//! A token is taken before the password is looked at, and comes back if the password was right. So
//! of attempts at the same time at most five are tried. An address without tokens is refused with
//! the right password as well: otherwise a refusal would tell a wrong guess from a right one.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, RateLimitLayer};
use tollgate_web_examples::{listen, stop};

async fn login(password: String) -> (StatusCode, &'static str) {
    match password.as_str() {
        "open sesame" => (StatusCode::OK, "welcome\n"),
        _ => (StatusCode::UNAUTHORIZED, "wrong\n"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let failures = Quota::every(Duration::from_secs(180)).burst(5);
    // A table: guesses come from many addresses.
    let failures = RateLimiter::builder(failures).max_keys(100_000).inline()?.build();
    let limit = RateLimitLayer::builder(failures)
        .key(ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip()))
        .refund_on(|status| status.is_success())
        .build();
    let app =
        Router::new().route("/login", post(login).layer(limit)).route("/", get(|| async { "not limited\n" }));
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await?)
}
