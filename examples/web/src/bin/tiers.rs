//! Tiers by API key: a limit by address, then authentication, then a limit by customer under the
//! plan of its tier.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin tiers
//! curl -i -H 'X-API-Key: free-1' http://127.0.0.1:8080/      # "customer";q=5;w=1
//! curl -i -H 'X-API-Key: pro-1' http://127.0.0.1:8080/       # "customer";q=50;w=1
//! curl -i -H 'X-API-Key: made-up' http://127.0.0.1:8080/     # 401, and one off the address
//! ```
//!
//! It is safe by its order. A key is the client's own text until the authentication has checked it:
//! a limit by the header would give each made-up value a full bucket. So the limit is by the
//! customer that the authentication left in the request's extensions. The authentication has a cost
//! of its own, and must not be flooded with guesses: a limit by address is in front of it.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, Digest, Extension, RateLimitLayer};
use tollgate_web_examples::{listen, stop};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CustomerId(u32);

#[derive(Clone, Copy)]
enum Tier {
    Free,
    Pro,
}

/// The customers by the digests of their keys. The time to compare digests tells nothing of the
/// right part of a guess.
type Customers = Arc<HashMap<Digest, (CustomerId, Tier)>>;

async fn authenticate(
    State(customers): State<Customers>,
    mut request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let key = request.headers().get("x-api-key").map(|key| Digest::of(key.as_bytes()));
    let (id, tier) = *key.and_then(|key| customers.get(&key)).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(id);
    request.extensions_mut().insert(tier);
    Ok(next.run(request).await)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let customer = |key: &str, id, tier| (Digest::of(key.as_bytes()), (CustomerId(id), tier));
    let customers: Customers =
        Arc::new([customer("free-1", 1, Tier::Free), customer("pro-1", 2, Tier::Pro)].into());

    // Any client comes this far: a table, which takes 21 bytes for each address.
    let addresses = RateLimiter::builder(Quota::per_second(200)).max_keys(100_000).inline()?.build();
    let by_address = RateLimitLayer::builder(addresses)
        .key(ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip()))
        .name("address")?
        .build();

    let (free, pro) = (Quota::per_second(5), Quota::per_second(50));
    // The customers are known, and few: a map.
    let limiter = RateLimiter::<CustomerId>::builder(free).headroom(pro)?.build();
    let pro = limiter.plan(pro)?;
    let by_customer = RateLimitLayer::builder(limiter)
        .key(Extension::<CustomerId>::new())
        .plan(move |head| match head.extensions.get::<Tier>() {
            Some(Tier::Pro) => Some(pro),
            Some(Tier::Free) | None => None,
        })
        .name("customer")?
        .build();

    // The last layer is the outermost.
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(by_customer)
        .layer(from_fn_with_state(customers, authenticate))
        .layer(by_address);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await?)
}
