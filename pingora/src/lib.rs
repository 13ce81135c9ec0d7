//! Limits of `tollgate` in a proxy of [pingora](https://docs.rs/pingora-proxy): a [`Gate`], with
//! three calls of the proxy's [`ProxyHttp`](pingora_proxy::ProxyHttp).
//!
//! | method of `ProxyHttp` | call |
//! |---|---|
//! | `request_filter` | [`gate.request(session, &mut ctx.gate).await`](Gate::request) answers a refusal |
//! | `response_filter` | [`gate.response(head, &mut ctx.gate)`](Gate::response) adds the fields |
//! | `logging` | [`gate.logging(error, &mut ctx.gate)`](Gate::logging) ends the request |
//!
//! The rates are those of a [`RateLimitLayer`](tollgate_http::RateLimitLayer), with all its options:
//! keys, several limits, costs, exempt requests, bans, shadow mode, counts, and stores. Beside them
//! are a limit on the requests in flight of a [key](Gate::places), and one of the
//! [upstream](Gate::upstream).
//!
//! ```no_run
//! use pingora_core::prelude::*;
//! use pingora_http::ResponseHeader;
//! use pingora_proxy::{ProxyHttp, Session};
//! use tollgate::{Quota, RateLimiter};
//! use tollgate_http::{ClientIp, RateLimitLayer};
//! use tollgate_pingora::{Gate, GateContext};
//!
//! struct Proxy {
//!     gate: Gate,
//! }
//!
//! #[async_trait::async_trait]
//! impl ProxyHttp for Proxy {
//!     type CTX = GateContext;
//!
//!     fn new_ctx(&self) -> GateContext {
//!         GateContext::default()
//!     }
//!
//!     async fn request_filter(&self, session: &mut Session, ctx: &mut GateContext) -> Result<bool> {
//!         self.gate.request(session, ctx).await
//!     }
//!
//!     async fn upstream_peer(&self, _: &mut Session, _: &mut GateContext) -> Result<Box<HttpPeer>> {
//!         Ok(Box::new(HttpPeer::new("127.0.0.1:8000", false, String::new())))
//!     }
//!
//!     async fn response_filter(
//!         &self,
//!         _: &mut Session,
//!         head: &mut ResponseHeader,
//!         ctx: &mut GateContext,
//!     ) -> Result<()> {
//!         self.gate.response(head, ctx);
//!         Ok(())
//!     }
//!
//!     async fn logging(&self, _: &mut Session, error: Option<&Error>, ctx: &mut GateContext) {
//!         self.gate.logging(error, ctx);
//!     }
//! }
//!
//! let limiter = RateLimiter::new(Quota::per_second(100));
//! let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
//! let proxy = Proxy { gate: Gate::new(layer.boxed()) };
//! # let _ = proxy;
//! ```
//!
//! # Refusals
//!
//! A refusal is that of the layer: 429 with `Retry-After` and the fields of the limit, the response
//! of a [`Reject`](tollgate_http::Reject), or the trailers of gRPC. It has a `Content-Length`, so
//! that the connection is kept. pingora reads and drops the body of the request before the next
//! one, for at most the [drain time](Gate::drain). A client that waits for `100 Continue` is told
//! that the connection closes, since it may leave its body out.
//!
//! # Places
//!
//! A request takes its places after it was granted its tokens, and a request without a place spends
//! them, unless [`refund_on`](tollgate_http::LayerBuilder::refund_on) accepts the status of that
//! refusal. [`Gate::logging`] gives the places back, and so does a dropped [`GateContext`].

mod context;
mod gate;
mod outcome;
mod refusal;
mod response;

pub use context::GateContext;
pub use gate::Gate;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
