//! A rate limiter for the hot path of proxies and servers: a token bucket in one atomic word.
//!
//! * [`TokenBucket`]: one limit, `const`, fit for a `static`.
//! * [`RateLimiter`]: a limit for each key, in a lock-free map of bounded size.
//! * [`Quota`]: a rate and a burst, checked when it is made.
//! * [`WindowCounter`]: at most a limit in a period, by a [`Window`]: fixed, by the calendar,
//!   sliding or weighted.
//!
//! A decision loads one word, reads the clock, and commits a grant by one compare-and-swap. A
//! refusal writes nothing. No thread waits for a lock, and no background thread is needed.
//!
//! ```
//! use tollgate::{Quota, TokenBucket};
//!
//! static LIMIT: TokenBucket = TokenBucket::new(Quota::per_second(100).burst(200));
//!
//! match LIMIT.try_acquire() {
//!     Ok(granted) => println!("go on, {} left", granted.remaining()),
//!     Err(denied) => println!("come back in {:?}", denied.retry_after()),
//! }
//! ```
//!
//! # Verbs
//!
//! On [`TokenBucket`], and on [`RateLimiter`] with a key:
//!
//! * [`try_acquire`](TokenBucket::try_acquire), [`try_acquire_n`](TokenBucket::try_acquire_n): now
//!   or never. [`acquire_up_to`](TokenBucket::acquire_up_to) takes the tokens that are there, up to
//!   `n`. [`try_acquire_at`](TokenBucket::try_acquire_at) decides at a given clock reading.
//!   [`peek`](TokenBucket::peek) only looks, [`refund`](TokenBucket::refund) gives back;
//! * [`blocking_acquire`](TokenBucket::blocking_acquire), `acquire().await`, and
//!   [`limited`](TokenBucket::limited) for outgoing calls: wait in line, first come, first served.
//!   [`reserve`](TokenBucket::reserve): tokens that will be earned later, without a wait;
//! * [`hold`](TokenBucket::hold) and [`settle`](Hold::settle): an estimate first, the cost when it
//!   is known;
//! * [`set_quota`](TokenBucket::set_quota): another rate and burst, for all keys at once.
//!   [`plan`](RateLimiter::plan): another for some keys;
//! * [`all_of`]: several limits, all or nothing;
//! * [`shadow`](Builder::shadow): decide and count, but never refuse.
//!   [`on_decision`](Builder::on_decision): a hook that sees every decision.
//!
//! # Features
//!
//! None is on by default. `serde`: a [`Quota`] or a [`Window`] in its text form. `tokio`: waiting
//! in tasks. `http`: keys from requests, and headers of responses. `ipnet`: trusted proxies by
//! network. `tower`: a layer over HTTP and gRPC. `metrics`: the layer's statistics through the
//! facade of that name. `tracing`: refusals, and faults of a layer's setup, as events;
//! without it the faults are lines on stderr.
//!
//! # The law
//!
//! For a quota of `rate` and `burst`, and any interval of length `T` on the limiter's clock:
//!
//! * at most `burst + rate * T` tokens and one tick's worth are granted: never more, under any
//!   interleaving of threads, however long the limiter runs;
//! * every take that the ideal token bucket grants is granted; where a tick is worth several
//!   tokens, at most one tick later.
//!
//! For ordinary quotas a tick is 2^-16 to 1 of the time that a token takes. Only for very fast
//! rates or very large bursts is it several tokens' time, at most 1/128 of the bucket.
//! `docs/design.md` derives this.
//!
//! # Limits
//!
//! * The state is local to one process.
//! * A clock that is set back by up to an hour costs or delays tokens but mints none. The bound is
//!   a 64th of the time range of a bucket's word, if that is shorter: 18 minutes at the least, for
//!   quotas such as 10^12 a second. A clock that is set back by more refills the bucket once. The
//!   processor's counter is never set back. For windows see [`Clock`](Clock#the-wall-clock).
//! * The counter does not count the time a machine is suspended.
//! * The layout of a word is fixed when it is built. A quota or a plan that is much larger or
//!   faster than the first quota needs [`headroom`](Builder::headroom); one that does not fit is an
//!   [`InvalidRule`].
//! * At most [`max_debt`](Builder::max_debt) tokens can be promised ahead, one burst by default.
//!   More callers than that may wait in line.

// The files of `tests/reference` name the crate, in here as elsewhere.
#[cfg(test)]
extern crate self as tollgate;

mod bucket;
mod fault;
#[cfg(feature = "http")]
pub mod http;
mod inflight;
mod keyed;
mod limiter;
mod rule;
mod sync;
#[cfg(test)]
mod tests;
mod time;
#[cfg(feature = "tower")]
pub mod tower;
mod word;

pub use bucket::reservation::{Hold, Reservation};
pub use equivalent::Equivalent;
pub use inflight::builder::InflightBuilder;
pub use inflight::controller::{Controller, Share, Verdict};
pub use inflight::gate::{Flight, Inflight, Overloaded, OwnedFlight};
pub use inflight::histogram::{Histogram, LatencyCounts};
pub use inflight::invalid_limit::InvalidLimit;
pub use inflight::outcome::Outcome;
pub use inflight::priority::Priority;
pub use inflight::seen::Seen;
pub use inflight::stats::InflightStats;
pub use keyed::key::ToKey;
pub use keyed::keyspace::Stats;
pub use keyed::overflow::WhenFull;
pub use limiter::adaptive::{AdaptedLimiter, Adaptive};
pub use limiter::adaptive_builder::AdaptiveBuilder;
pub use limiter::all_of::{AllDenied, AllOf, TokenSet, Tokens, all_of};
pub use limiter::ask::Ask;
pub use limiter::asked::Asked;
pub use limiter::builder::{Builder, LimitBuilder};
pub use limiter::inflight_limiter::InflightLimiter;
pub use limiter::inflight_limiter_builder::InflightLimiterBuilder;
pub use limiter::janitor::Janitor;
pub use limiter::key_flight::{KeyFlight, KeyOverloaded, OwnedKeyFlight};
pub use limiter::keyed::{Keyed, PinnedKey};
pub use limiter::limit::{Limit, TokenBucket, WindowCounter};
pub use limiter::limited::Limited;
pub use limiter::pinned::Pinned;
pub use limiter::plan::Plan;
pub use limiter::rate_limiter::RateLimiter;
pub use limiter::rule::Rule;
pub use limiter::shared::Shared;
pub use rule::any_rule::AnyRule;
pub use rule::error::InvalidRule;
pub use rule::rate::{AtMost, Quota};
pub use rule::window::Window;
pub use time::clock::{Clock, MockClock, Moment};
pub use time::jitter::Jitter;
pub use word::decision::snapshot::Snapshot;
pub use word::decision::{Denied, Granted, Reason};

/// The README's programs run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/guide.md")]
pub mod _guide {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/in-flight.md")]
pub mod _in_flight {}

/// The programs for users of governor run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/from-governor.md")]
mod from_governor {}

/// The programs for users of tower_governor run as tests.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../docs/from-tower-governor.md")]
mod from_tower_governor {}
