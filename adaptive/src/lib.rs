//! Limits for a server that may be slow: on the requests in flight, on those of each key, and
//! limits and quotas that follow the latency of the answers.
//!
//! | you have | take | one line |
//! |---|---|---|
//! | a fixed number of requests at a time | [`Inflight`] | `static UPLOADS: Inflight = Inflight::fixed(8);` |
//! | an upstream that slows down under load | [`Inflight`] | `Inflight::adaptive(target, 1_000).build()?` |
//! | a number of requests at a time of each client | [`Enter`] | `uploads.try_enter("ada")?` |
//! | requests whose end no guard sees | [`Adaptive`] | `Adaptive::new(&limiter, ceiling)?.build()?` |
//! | requests of several priorities | [`Priority`] | `upstream.try_enter_as(Priority::Sheddable)?` |
//! | a rule of your own | [`Controller`] | `Inflight::adaptive(target, 1_000).controller(Steps)` |
//! | HTTP or gRPC | `InflightLayer` | `InflightLayer::new(upstream)` |
//!
//! A request takes a place, holds it as a [`Flight`] or a [`KeyFlight`], and leaves when that is
//! dropped. A refusal is [`Overloaded`].
//!
//! ```
//! use std::time::Duration;
//! use tollgate_adaptive::Inflight;
//!
//! // At most 1,000 in flight, and fewer if a tenth of the answers takes longer than 300 ms.
//! let upstream = Inflight::adaptive(Duration::from_millis(300), 1_000).build()?;
//! match upstream.try_enter() {
//!     Ok(flight) => {
//!         // Send the request, and wait for its answer.
//!         flight.answered();
//!     }
//!     Err(overloaded) => println!("503: {overloaded}"),
//! }
//! # Ok::<(), tollgate_adaptive::InvalidLimit>(())
//! ```
//!
//! # A number of requests at a time of each client
//!
//! ```
//! use tollgate::{Places, RateLimiter};
//! use tollgate_adaptive::Enter;
//!
//! let uploads = RateLimiter::<String, _>::new(Places::new(2));
//! let first = uploads.try_enter("ada")?;
//! let second = uploads.try_enter("ada")?;
//! assert!(uploads.try_enter("ada").is_err());
//! drop(first);
//! assert!(uploads.try_enter("ada").is_ok());
//! # drop(second);
//! # Ok::<(), tollgate_adaptive::Overloaded>(())
//! ```
//!
//! # Features
//!
//! None is on by default. `http`: a layer over HTTP and gRPC. `metrics`: its statistics through the
//! facade of that name.
//!
//! [The page on requests in flight](_in_flight) says how a limit follows the answers, and what a
//! closed loop of it did.

// On docs.rs each item shows its feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod controller;
mod count;
mod fault;
mod gate;
mod invalid_limit;
mod keyed;
#[cfg(feature = "http")]
mod layer;
mod quota;
mod signals;
mod sync;
#[cfg(test)]
mod tests;
mod time;

pub use controller::controllers::{Controller, Fraction, Next};
pub use count::priority::Priority;
pub use gate::builder::InflightBuilder;
pub use gate::flight::{Flight, OwnedFlight};
pub use gate::inflight::Inflight;
pub use gate::overloaded::Overloaded;
pub use gate::stats::InflightStats;
pub use invalid_limit::InvalidLimit;
pub use keyed::{Enter, KeyFlight};
#[cfg(feature = "http")]
pub use layer::{
    Admission, Admitted, InflightFuture, InflightLayer, InflightLayerBuilder, InflightLayerStats,
    LimitInflight, PriorityStats, Unavailable, Until, prometheus_inflight,
};
pub use quota::adaptive::{AdaptedLimiter, Adaptive};
pub use quota::builder::AdaptiveBuilder;
pub use signals::histogram::{Histogram, LatencyCounts};
pub use signals::outcome::Outcome;
pub use signals::samples::Samples;

/// The README's programs run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/in-flight.md")]
pub mod _in_flight {}
