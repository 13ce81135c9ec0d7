//! A layer of [tower](https://docs.rs/tower) that limits requests over HTTP, and over gRPC.
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::http::ClientIp;
//! use tollgate::tower::RateLimitLayer;
//! use tollgate::{Quota, RateLimiter};
//! # use std::future::{Ready, ready};
//! # use std::task::{Context, Poll};
//! # #[derive(Clone)]
//! # struct Hello;
//! # impl tower_service::Service<Request<()>> for Hello {
//! #     type Response = Response<String>;
//! #     type Error = std::convert::Infallible;
//! #     type Future = Ready<Result<Response<String>, Self::Error>>;
//! #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> { Poll::Ready(Ok(())) }
//! #     fn call(&mut self, _: Request<()>) -> Self::Future { ready(Ok(Response::new("hello".to_owned()))) }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use tower_layer::Layer;
//! use tower_service::Service;
//!
//! let limiter = RateLimiter::new(Quota::per_second(1));
//! let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
//! let mut service = layer.layer(Hello);
//!
//! let mut request = Request::new(());
//! request.extensions_mut().insert(std::net::IpAddr::from([192, 0, 2, 1]));
//! let granted = service.call(request.clone()).await.unwrap();
//! assert_eq!(granted.headers()["ratelimit"], r#""default";r=0;t=1"#);
//! let refused = service.call(request).await.unwrap();
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &1.into()));
//! # }
//! ```
//!
//! # Where it goes
//!
//! The state is in the layer, behind an `Arc`: all services that one layer makes, and all of their clones, count together.
//!
//! What is before a limiter costs what an attacker likes; what is behind it is spared. By address it goes outermost, before
//! anything that is dear. By a key that a client sends it goes behind what authenticates the key (see
//! [`Extension`](crate::http::Extension)), or every value that somebody makes up is a new bucket; with a limit by address in front of
//! that, lest authentication be what is flooded. [`by_address_and_key`](RateLimitLayer::by_address_and_key) is both in one layer.
//!
//! # Requests without a key
//!
//! A limit without a source of keys does not compile: [`key`](NeedsKey::key) or
//! [`shared`](NeedsKey::shared) comes first. A request that has no key is rejected unless
//! [`OnMissingKey`] says otherwise. The status is 400, or 500 if the server has not noted the
//! peer's address. Such a fault of the setup is also said once, on stderr or with feature `tracing`
//! as an event: [`Check`](crate::http::Check) has the list.
//!
//! # What happens when
//!
//! The decision is made when the service is called, before the request is passed on: at once, without waiting. A request that is
//! passed on has a [`Decision`] among its extensions; if it has one already of another layer, a limiter that has counted it
//! there does not count it again.
//!
//! A refusal takes nothing of the service within: no permit of a `ConcurrencyLimit`, no place in a `Buffer`. So
//! `poll_ready` is always ready, and only a granted request asks the service within whether it is ready. A busy service
//! is waited for in the response, with a clone of the service left behind; so the service has to be `Clone`, as axum,
//! hyper-util and tonic also require. A `BoxService` is not: a `BoxCloneService` or a `Buffer` takes its place.
//!
//! A layer outside of this one therefore sees no back-pressure: `LoadShed` goes inside, over the service that is busy. A
//! granted request that `LoadShed` turns away, or that is dropped while it waits, has spent its tokens.
//!
//! # Bodies
//!
//! The body of a response is a [`ResponseBody`]: that of the service, or a refusal's bytes. So the layer goes over any
//! service, also outermost in a `ServiceBuilder` over `TraceLayer`, `CompressionLayer` and the like. axum and tonic put
//! a body of another type than their own into a box. [`ResponseBody::into_inner_or_else`], mapped over the response,
//! saves this box, and gives a layer of `option_layer` the type that it needs.

mod body;
mod chain;
mod decide;
mod decision;
mod layer;
mod limit_by;
mod limiter;
#[cfg(feature = "metrics")]
mod metrics;
mod policies;
mod said;
mod service;
mod stats;
#[cfg(not(feature = "tracing"))]
mod stderr;
mod top_keys;
#[cfg(feature = "tracing")]
mod tracing;

pub use body::ResponseBody;
pub use decision::Decision;
pub use layer::{LayerBuilder, RateLimitLayer};
pub use limit_by::{LimitBy, NeedsKey, OnMissingKey};
pub use service::{RateLimit, ResponseFuture};
pub use stats::{LayerStats, LimitStats, prometheus};
