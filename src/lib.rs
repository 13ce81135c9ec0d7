//! A rate limiter for the hot path of proxies and servers: a token bucket in one atomic word.
//!
//! * [`TokenBucket`]: one limit, `const`, fit for a `static`.
//! * [`RateLimiter`]: a limit for each key, in a lock-free map of bounded size.
//! * [`Quota`]: a rate and a burst, checked when it is made.
//!
//! A decision loads one word, reads the clock, and commits a grant by one compare-and-swap. A refusal
//! writes nothing. Nobody waits for a lock, and no background thread is needed.
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
//! * [`try_acquire`](TokenBucket::try_acquire), [`try_acquire_n`](TokenBucket::try_acquire_n): now or never.
//!   [`acquire_up_to`](TokenBucket::acquire_up_to) takes what is there, [`try_acquire_at`](TokenBucket::try_acquire_at) decides
//!   at a reading of the clock that you have, [`peek`](TokenBucket::peek) looks, [`refund`](TokenBucket::refund) gives back;
//! * [`reserve`](TokenBucket::reserve): tokens that will have been earned later, in order of arrival. On it stand
//!   [`blocking_acquire`](TokenBucket::blocking_acquire), `acquire().await`, [`paced`](TokenBucket::paced), and
//!   [`limited`](TokenBucket::limited) for outgoing calls;
//! * [`hold`](TokenBucket::hold) and [`settle`](Hold::settle): an estimate first, the cost when it is known;
//! * [`set_quota`](TokenBucket::set_quota): another rate and burst, for all keys at once.
//!   [`plan`](RateLimiter::plan): another for some keys;
//! * [`all_of`]: several limits, all or nothing;
//! * [`shadow`](Builder::shadow) and [`on_decision`](Builder::on_decision): look on, and refuse nothing.
//!
//! # Features
//!
//! None by default. `serde`: a [`Quota`] in its text form. `tokio`: waiting in tasks, and a stream. `http`: who asks, and what
//! a response says. `ipnet`: proxies to trust by network. `tower`: a layer over HTTP and gRPC. `metrics`: its statistics through
//! the facade of that name. `tracing`: faults of a layer's setup as events, which are lines on
//! stderr otherwise. `huge-pages`: a large table of [`Builder::inline`] on those, where Linux has
//! them to give.
//!
//! # The law
//!
//! For a quota of `rate` and `burst`, and any interval of length `T` on the limiter's clock:
//!
//! * at most `burst + rate * T` tokens are granted, and one tick's worth: never more, under any
//!   interleaving of threads, however long it runs;
//! * whatever the ideal token bucket would grant is granted; where a tick is worth several tokens, by at most one
//!   tick later.
//!
//! A tick is 2^-16 to 1 of the time a token takes for ordinary quotas, and several tokens' time only for very fast
//! rates or very large bursts, at most 1/128 of the bucket. `docs/design.md` derives this.
//!
//! # Limits
//!
//! * The state is that of one process.
//! * A clock that is set back by 4 s to an hour more than the latest decision, or by a bucket's whole time range
//!   (13 days at the least for ordinary quotas), costs or delays tokens but mints none; one set back by more than
//!   that refills the bucket once. The processor's counter does not do this.
//! * The counter does not count the time a machine is suspended.
//! * A word is laid out once. A quota or a plan that is much larger or faster than the one it was built for needs
//!   [`headroom`](Builder::headroom); what does not fit is an [`InvalidQuota`].
//! * As many tokens can be waited for as [`max_debt`](Builder::max_debt) says, one burst by default.

mod bucket;
mod fault;
#[cfg(feature = "http")]
pub mod http;
mod keyed;
mod limiter;
pub mod prelude;
mod quota;
mod sync;
#[cfg(test)]
mod tests;
mod time;
#[cfg(feature = "tower")]
pub mod tower;
mod word;

pub use bucket::reservation::{Hold, Reservation};
pub use equivalent::Equivalent;
pub use keyed::key::ToKey;
pub use keyed::keyspace::Stats;
pub use keyed::overflow::WhenFull;
pub use limiter::all_of::{AllDenied, AllOf, BucketLimit, Limit, Limits, all_of};
pub use limiter::blocking::Paced;
pub use limiter::builder::{BucketBuilder, Builder};
pub use limiter::janitor::Janitor;
pub use limiter::key_limit::KeyLimit;
pub use limiter::limited::Limited;
pub use limiter::pinned::Pinned;
pub use limiter::rate_limiter::RateLimiter;
pub use limiter::token_bucket::TokenBucket;
#[cfg(feature = "tokio")]
pub use limiter::tokio::PacedStream;
pub use quota::rate::{InvalidQuota, Quota};
pub use time::clock::{Clock, MockClock, Moment};
pub use time::jitter::Jitter;
pub use word::decision::{Denied, Granted, Reason, Snapshot};
pub use word::plan::Plan;

/// The README's programs run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/guide.md")]
pub mod _guide {}

/// The programs for users of governor run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/from-governor.md")]
mod from_governor {}
