//! Limits of routes and methods on one layer, by axum's `MatchedPath`, and an admin's view of it.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin routes
//! curl -i -H 'Authorization: Bearer ada' http://127.0.0.1:8080/items/1
//! for _ in 1 2 3 4; do curl -i -H 'Authorization: Bearer ada' -d book http://127.0.0.1:8080/items; done
//! curl http://127.0.0.1:8080/admin/stats
//! curl -X POST http://127.0.0.1:8080/admin/unban/7
//! ```
//!
//! A `MatchedPath` is the route that axum has found: the limit for `/items/{id}` holds for every id
//! and every spelling of it. The key is an account, which takes a look at a database to find. In
//! production the admin's routes are behind an authentication of their own, as in `tiers`.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, MatchedPath, Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, StatusCode};
use axum::routing::{get, post};
use tollgate::{InvalidRule, Quota, RateLimiter, Window};
use tollgate_http::{BoxRateLimitLayer, ClientIp, Head, LimitBy, RateLimitLayer, prometheus};
use tollgate_web_examples::{listen, stop};

/// Accounts by their tokens. A database takes its place.
#[derive(Clone)]
struct Accounts(Arc<HashMap<&'static str, u64>>);

impl Accounts {
    async fn find(self, token: String) -> Option<u64> {
        tokio::task::yield_now().await;
        self.0.get(&*token).copied()
    }
}

/// Returns whether a request has this method, for this route.
fn is(method: Method, route: &'static str) -> impl Fn(Head<'_>) -> bool {
    move |head| {
        let matched = head.extensions.get::<MatchedPath>();
        *head.method == method && matched.is_some_and(|path| path.as_str() == route)
    }
}

async fn stats(State(limits): State<BoxRateLimitLayer>) -> String {
    prometheus(&[limits.stats()])
}

async fn unban(State(limits): State<BoxRateLimitLayer>, Path(account): Path<u64>) -> StatusCode {
    match limits.limit("account").map(|limit| limit.unban(&account)) {
        Some(true) => StatusCode::NO_CONTENT,
        _ => StatusCode::NOT_FOUND,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let accounts = Accounts(Arc::new([("ada", 7), ("bob", 8)].into()));
    let token = |head: Head<'_>| {
        let value = head.headers.get(AUTHORIZATION)?.to_str().ok()?;
        Some(value.strip_prefix("Bearer ")?.to_owned())
    };
    let peer = || ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    // Tables: any client can come, from any address.
    let read = RateLimiter::builder(Quota::per_second(50)).max_keys(100_000).inline()?.build();
    // Two windows on one route: a request takes from both, or from none.
    let write = |window| -> Result<_, InvalidRule> {
        let limiter = RateLimiter::builder(window).max_keys(100_000).inline()?.build();
        Ok(LimitBy::new(limiter).key(peer()).when(is(Method::POST, "/items")))
    };

    let limits = RateLimitLayer::builder(RateLimiter::<u64>::new(Quota::per_hour(30)))
        .key_async(move |head| {
            let (token, accounts) = (token(head), accounts.clone());
            async { accounts.find(token?).await }
        })
        .name("account")?
        .ban_after(3, Duration::from_secs(60))
        .for_(Duration::from_secs(600))?
        .and(LimitBy::new(read).key(peer()).name("read")?.when(is(Method::GET, "/items/{id}")))
        .and(write(Window::per(3, Duration::from_secs(60)).sliding())?.name("write-minute")?)
        .and(write(Window::per_hour(20))?.name("write-hour")?)
        .build()
        .boxed();

    let admin = Router::new()
        .route("/admin/stats", get(stats))
        .route("/admin/unban/{account}", post(unban))
        .with_state(limits.clone());
    let app = Router::new()
        .route("/items", get(|| async { "items\n" }).post(|| async { StatusCode::CREATED }))
        .route("/items/{id}", get(|Path(id): Path<String>| async move { format!("item {id}\n") }))
        .layer(limits)
        .merge(admin);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await?)
}
