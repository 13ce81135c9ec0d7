//! Rate limits of `tollgate` over HTTP and gRPC: a layer of [tower](https://docs.rs/tower), the
//! keys of requests, and the headers of responses.
//!
//! | you have | take |
//! |---|---|
//! | a server of axum, tonic, hyper or tower | [`RateLimitLayer`] |
//! | addresses of clients, also behind proxies | [`ClientIp`] |
//! | users or customers, after authentication | [`Extension`], and [`plan`](LimitBy::plan) for tiers |
//! | a key in a header | [`HeaderKey`] |
//! | several limits, or limits of routes | [`LimitBy`], by [`and`](LayerBuilder::and) and [`when`](LimitBy::when) |
//! | a login that counts only failures | [`refund_on`](LayerBuilder::refund_on) |
//! | bytes or tokens of a model, known from the response | [`settle_on`](LayerBuilder::settle_on) |
//! | requests that should wait | [`DelayLayer`] |
//! | clients that go on and on | [`ban_after`](LimitBy::ban_after) |
//! | requests that no limit applies to | [`Exempt`] |
//! | a limit to try out | [`enforce`](LimitBy::enforce) |
//! | a response of your own | [`Reject`] |
//! | Prometheus | [`prometheus`](prometheus()), or feature `metrics` |
//! | another framework | [`decide`](RateLimitLayer::decide), the decision without a service |
//! | a server with headers of its own | [`ClientIp::key_of`], and [`Policy::fields`] for the headers |
//! | a limiter on a store | `tollgate-distributed`, or your [`LayerLimiter`] |
//! | requests in flight | the layer of `tollgate-adaptive` |
//!
//! [The guide](_guide) has a program for each. The README has a server of axum.
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{Quota, RateLimiter};
//! use tollgate_http::{ClientIp, RateLimitLayer};
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
//! The layer has the state, behind an `Arc`: all services of one layer, and all their clones, count
//! together.
//!
//! Layers outside the limiter do their work for every request, including an attacker's; layers
//! inside it only for granted ones. A limit by address goes outermost, before costly layers. A
//! limit by a key that clients send goes inside the layer that authenticates the key (see
//! [`Extension`]): otherwise every made-up value is a new bucket. A limit
//! by address goes outside both, against floods of authentications.
//! One layer has both limits by [`and`](LayerBuilder::and).
//!
//! # Requests without a key
//!
//! A limit without a source of keys does not compile: [`key`](NeedsKey::key) or
//! [`shared`](NeedsKey::shared) comes first. A request that has no key is rejected unless
//! [`OnMissingKey`] says otherwise. The status is 400, or 500 if the server has not noted the
//! peer's address. Such a fault of the setup is also reported once, on stderr or with feature
//! `tracing` as an event: [`Check`] has the list.
//!
//! # What happens when
//!
//! The service decides at once when it is called, before it passes the request on, unless it has to
//! wait for a [key](NeedsKey::key_async) or for a limiter that is not
//! [at hand](LayerLimiter::is_at_hand). A request that is passed on has a [`Decision`] among its
//! extensions. A limiter that an outer layer has already asked does not count the request again.
//!
//! | step | by |
//! |---|---|
//! | an exempt request passes | [`exempt`](LayerBuilder::exempt) |
//! | limits that do not apply are left out | [`when`](LimitBy::when) |
//! | the keys are searched for | [`key_async`](NeedsKey::key_async) |
//! | the request of a banned key is refused | [`ban_after`](LimitBy::ban_after) |
//! | limiters that are not at hand are asked | [`AnyLimiter::of`] |
//! | all limits grant, or one refuses | [`and`](LayerBuilder::and) |
//! | a refused request waits for its turn | [`DelayLayer`] |
//! | the decision is counted, and applied or not | [`enforce`](LimitBy::enforce) |
//! | a response settles the cost | [`settle_on`](LayerBuilder::settle_on) |
//!
//! A refusal takes no resource of the inner service: no permit of a `ConcurrencyLimit`, no place in
//! a `Buffer`. So `poll_ready` is always ready, and only a granted request polls the inner service
//! for readiness. The response future waits for a busy service, and a clone stays behind. So the
//! service has to be `Clone`, as for axum, hyper-util and tonic: a `BoxCloneService` or a `Buffer`
//! instead of a `BoxService`.
//!
//! A layer outside of this one sees no back-pressure, so `LoadShed` goes inside, over the busy
//! service. A granted request that `LoadShed` turns away, or that is dropped while it waits, has
//! spent its tokens.
//!
//! # Bodies
//!
//! The body of a response is a [`ResponseBody`]: that of the inner service, or a refusal's bytes.
//! So the layer goes over any service, also outermost in a `ServiceBuilder` over `TraceLayer` and
//! the like. axum and tonic box a body of another type than their own.
//! [`ResponseBody::into_inner_or_else`], mapped over the response, saves this box, and gives a
//! layer of `option_layer` the type that it needs.

// On docs.rs each item shows its feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod layer;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use layer::decide::decision::Decision;
pub use layer::decide::passed::{Passed, Verdict};
pub use layer::decide::settle::{Cost, Meter};
pub use layer::limit::ban::{BanAfter, InvalidBan};
pub use layer::limit::counts::LimitStats;
pub use layer::limit::limit_by::{LimitBy, NeedsKey, OnMissingKey};
pub use layer::limit::limiter::{
    Answer, AnswersFuture, AnyLimiter, LayerLimiter, LayerPlan, LayerRequest, Question,
};
pub use layer::limit::named::NamedLimit;
pub use layer::service::body::ResponseBody;
pub use layer::service::boxed::BoxRateLimitLayer;
pub use layer::service::builder::LayerBuilder;
pub use layer::service::deciding::Deciding;
pub use layer::service::delay::DelayLayer;
pub use layer::service::rate_limit::{RateLimit, ResponseFuture};
pub use layer::service::rate_limit_layer::RateLimitLayer;
pub use layer::service::stats::{LayerStats, prometheus};
pub use request::check::Check;
#[cfg(feature = "ipnet")]
pub use request::client_ip::networks::InvalidNetwork;
pub use request::client_ip::{ClientIp, ClientIpStats, InvalidPrefix, Trust};
pub use request::digest::Digest;
pub use request::exempt::{Exempt, InvalidPath};
pub use request::forwarded::HopList;
pub use request::key::{Extension, Head, HeaderKey, KeyFrom, key_fn};
pub use request::value::{cookie_value, header_value};
pub use response::fields::Fields;
pub use response::grpc::GrpcForm;
pub use response::head::{ResponseHead, ResponseMut};
pub use response::policy::{Headers, Policy};
pub use response::policy_name::InvalidName;
pub use response::refusal::{Bare, Problem, Refusal, Reject};
pub use response::refusal_body::RefusalBody;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/guide.md")]
pub mod _guide {}
