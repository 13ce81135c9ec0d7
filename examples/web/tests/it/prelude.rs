// promise: layer
//! The prelude beside the crates `http` and `tower`: it has no modules of their names.

use http::Request;
use tollgate::prelude::*;
use tower::{Layer, Service, ServiceExt, service_fn};

#[tokio::test]
async fn the_prelude_goes_with_the_crates_http_and_tower() {
    let limiter = RateLimiter::new(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(key_fn(|head| Some(head.uri.path().to_owned()))).build();
    let inner = service_fn(async |_| Ok::<_, std::convert::Infallible>(http::Response::new(String::new())));
    let mut service = layer.layer(inner);
    let mut ask = async || {
        let service = ServiceExt::<Request<()>>::ready(&mut service).await.unwrap();
        service.call(Request::get("/a").body(()).unwrap()).await.unwrap().status().as_u16()
    };
    assert_eq!([ask().await, ask().await], [200, 429]);
}
