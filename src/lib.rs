//! A lock-free rate limiter for the hot path of proxies and servers.
//!
//! A token bucket is one atomic word. A limit for each key is a lock-free map of buckets.
//!
//! | you have | take | one line |
//! |---|---|---|
//! | one limit | [`TokenBucket`] | `static LIMIT: TokenBucket = TokenBucket::new(QUOTA);` |
//! | a limit for each key | [`RateLimiter`] | `let per_ip = RateLimiter::<IpAddr>::new(QUOTA);` |
//! | 1,000 a day | [`Window`] | `let daily = RateLimiter::<u64, _>::new(window);` |
//! | tiers of customers | [`Plan`] | `daily.key(&7).under(&gold).try_acquire()?` |
//! | time to wait | [`Ask`] | `LIMIT.ask().within(second).acquire().await?` |
//! | several limits | [`all_of`] | `all_of((LIMIT.ask(), daily.key(&7))).try_acquire()?` |
//! | HTTP | `tollgate-http` | `RateLimitLayer::builder(per_ip).key(client_ip).build()` |
//! | requests in flight | [`Places`], `tollgate-adaptive` | `uploads.key("ada").hold()?` |
//! | a fleet | `tollgate-distributed` | `DistributedLimiter::builder(quota, store)` |
//!
//! The [cheat sheet](_cheatsheet) has all calls on one screen, and the [guide](_guide) a program
//! for each. The [recipes](_recipes) are whole programs: a login, tiers behind nginx, a monthly
//! plan. The [FAQ](_faq) has the usual surprises.
//!
//! A [`Quota`] is a rate and a burst: `Quota::per_second(100).burst(200)`. The burst is by default
//! the tokens of the period. A [`Window`] is a limit in a period: `Window::per_day(1_000).utc()`.
//! Both have `per_second`, `per_minute`, `per_hour` and `per_day`. Numbers of tokens are `u64`.
//!
//! Each decision is a `Result` of [`Granted`], with the tokens that are left, or [`Denied`]. The
//! `retry_after()` of a refusal is the time until the same call can be granted, an
//! `Option<Duration>`: `None` is never. The short verbs, such as
//! `try_acquire`, are on the limiter. All other verbs and the options are on an [`Ask`]:
//! `limiter.key(&key)` or `bucket.ask()`.
//!
//! In a field the types are `TokenBucket`, `WindowCounter`, `RateLimiter<IpAddr>`,
//! `RateLimiter<String, Window>` and `Plan` or `Plan<Window>`. A clone of a `RateLimiter` is a
//! handle to the same limiter.
//!
//! # A limit for each address, in axum
//!
//! ```text
//! cargo add tollgate tollgate-http
//! cargo add axum
//! cargo add tokio --features macros,net,rt-multi-thread
//! ```
//!
//! ```ignore
//! use axum::extract::ConnectInfo;
//! use axum::{Router, routing::get};
//! use std::net::SocketAddr;
//! use tollgate::{Quota, RateLimiter};
//! use tollgate_http::{ClientIp, RateLimitLayer};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(2)))
//!         .key(ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip()))
//!         .build();
//!     let app =
//!         Router::new().route("/", get(|| async { "hello\n" })).layer(layer);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     println!("listening on http://{}", listener.local_addr()?);
//!     // Makes the peer's address available to the layer. Without it every request
//!     // fails with 500, and the reason is on stderr.
//!     axum::serve(
//!         listener,
//!         app.into_make_service_with_connect_info::<SocketAddr>(),
//!     )
//!     .await
//! }
//! ```
//!
//! A refused request gets 429 at once, with `RateLimit` headers and a `Retry-After`. Behind a proxy
//! the peer is the proxy: add `.behind(HopList::XForwardedFor, Trust::hops(1))` to the `ClientIp`
//! for one proxy that appends to `X-Forwarded-For`.
//! [Its guide](https://docs.rs/tollgate-http/latest/tollgate_http/_guide/) has the other cases.
//!
//! # One limit, for calls out
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Denied, Quota, TokenBucket};
//!
//! // 50 a second, one at a time. `burst(10)` would let 10 go at once after a pause.
//! static API: TokenBucket = TokenBucket::new(Quota::per_second(50).burst(1));
//!
//! fn fetch(page: u32) -> Result<u32, Denied> {
//!     // In line, first come, first served. A wait of more than 10 s is refused at once.
//!     API.ask().within(Duration::from_secs(10)).blocking_acquire()?;
//!     Ok(page)
//! }
//!
//! for page in 1..=3 {
//!     println!("page {}", fetch(page)?);
//! }
//! # Ok::<(), Denied>(())
//! ```
//!
//! In a task the verb is `API.ask().acquire().await?`, of feature `tokio`. Without `within` a
//! caller waits as long as it takes. `API.try_acquire()` never waits. Options of a bucket, such as
//! [`max_waiting`](LimitBuilder::max_waiting), are on `TokenBucket::builder(quota)`, in a
//! `LazyLock`.
//!
//! # Tiers by API key
//!
//! ```
//! use tollgate::{Denied, Granted, InvalidRule, Plan, Quota, RateLimiter};
//!
//! struct Limits {
//!     customers: RateLimiter<String>,
//!     pro: Plan,
//! }
//!
//! impl Limits {
//!     fn new() -> Result<Limits, InvalidRule> {
//!         let (free, pro) = (Quota::per_second(5), Quota::per_second(50));
//!         // `headroom` is the largest quota that a plan may have.
//!         let customers = RateLimiter::<String>::builder(free).headroom(pro)?.build();
//!         let pro = customers.plan(pro)?;
//!         Ok(Limits { customers, pro })
//!     }
//!
//!     /// Decides on a request whose API key was checked before: a client can make keys up.
//!     fn decide(&self, api_key: &str, is_pro: bool) -> Result<Granted, Denied> {
//!         self.customers.key(api_key).under(is_pro.then_some(&self.pro)).try_acquire()
//!     }
//! }
//!
//! let limits = Limits::new()?;
//! assert_eq!(limits.decide("free-1", false)?.remaining(), 4);
//! assert_eq!(limits.decide("pro-1", true)?.remaining(), 49);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A key keeps the tokens that are *left* in its bucket from plan to plan: one that is upgraded
//! fills up at the new rate. Under a plan of a [`Window`] it keeps the tokens that it *used*, so an
//! upgrade counts at once (see [1,000 a day](#1000-a-day)).
//!
//! The layer for HTTP chooses the plan by the request, behind the authentication of the key: see
//! [`LimitBy::plan`](https://docs.rs/tollgate-http/latest/tollgate_http/struct.LimitBy.html).
//!
//! # 1,000 a day
//!
//! ```
//! use tollgate::{RateLimiter, Window};
//!
//! // From midnight to midnight in UTC. Without `utc()` the day of a key begins at its first use.
//! let daily: RateLimiter<String, Window> = RateLimiter::new(Window::per_day(1_000).utc());
//!
//! match daily.try_acquire_n("ada", 3) {
//!     Ok(granted) => println!("{} left today", granted.remaining()),
//!     Err(denied) => println!("again in {:?}", denied.retry_after().unwrap_or_default()),
//! }
//!
//! // Another limit for some keys, on the same counts: tokens that were used stay used.
//! let trial = daily.plan(daily.rule().with_limit(10)?)?;
//! assert_eq!(daily.key("ada").under(&trial).peek().remaining(), 7);
//! # Ok::<(), tollgate::InvalidRule>(())
//! ```
//!
//! A plan with a larger limit needs room: `RateLimiter::<String, _>::builder(window)`, then
//! `.headroom(window.with_limit(10_000)?)?.build()`. A strict cap is a sliding window:
//! `Window::per(5, Duration::from_secs(900)).sliding()`. One limit without keys is a
//! `WindowCounter`. Without `utc()` a window ends up to a 2^15th of its period late, and
//! `retry_after` counts that.
//!
//! # Several limits, all or nothing
//!
//! ```
//! use tollgate::{Quota, RateLimiter, TokenBucket, Window, all_of};
//!
//! let service = TokenBucket::new(Quota::per_second(1_000));
//! let per_user = RateLimiter::<String>::new(Quota::per_second(10));
//! let daily = RateLimiter::<String, _>::new(Window::per_day(1_000).utc());
//!
//! let request = all_of((service.ask(), per_user.key("ada"), daily.key("ada").n(5)));
//! match request.try_acquire() {
//!     Ok(granted) => println!("{} left of the tightest", granted.remaining()),
//!     // No limit has lost a token.
//!     Err(refused) => println!("limit {} refused: {}", refused.which(), refused.denied()),
//! }
//! ```
//!
//! A refusal is an [`AllDenied`]. Its `which()` is the position of the limit, from 0.
//!
//! # Guarantees
//!
//! For a quota of `rate` and `burst`, and any interval of length `T` on the limiter's clock:
//!
//! * At most `burst + rate * T` tokens and one tick's worth are granted, under any interleaving of
//!   threads, however long the limiter runs.
//! * Each take that the ideal token bucket grants is granted; where a tick is worth several tokens,
//!   at most one tick later.
//!
//! A tick is 2^-16 to 1 of the time that a token takes. Only for very fast rates or very large
//! bursts is it several tokens' time, at most 1/128 of the bucket. `docs/design.md` derives this.
//!
//! A decision loads one word, reads the clock, and commits a grant by one compare-and-swap. A
//! refusal writes nothing. No thread waits for a lock, and no background thread is needed.
//!
//! # Limits
//!
//! * The state is local to one process. `tollgate-distributed` shares a limit over a fleet.
//! * A clock that is set back by up to an hour costs or delays tokens but mints none. The bound is
//!   a 64th of the time range of a bucket's word, if that is shorter: 18 minutes at the least. One
//!   that is set back by more refills the bucket once. The default clock is the processor's
//!   counter, which is never set back. For windows see [`Clock`](Clock#the-wall-clock).
//! * The counter does not count the time a machine is suspended.
//! * The layout of a word is fixed when it is built. A rule or a plan that is much larger or faster
//!   than the first rule needs [`headroom`](Builder::headroom); one that does not fit is an
//!   [`InvalidRule`].
//! * At most [`max_debt`](Builder::max_debt) tokens can be promised ahead, one burst by default.
//!   More callers than that may wait in line.
//!
//! # Features
//!
//! None is on by default. `serde`: rules in their text form. `tokio`: waiting in tasks by its
//! timer.

// On docs.rs each item shows its feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The files of `tests/reference` name the crate, in here as elsewhere.
#[cfg(test)]
extern crate self as tollgate;

mod bucket;
mod fault;
mod keyed;
mod limiter;
mod rule;
mod sync;
#[cfg(test)]
mod tests;
mod time;
mod word;

pub use bucket::reservation::{Hold, Reservation};
pub use equivalent::Equivalent;
pub use keyed::key::ToKey;
pub use keyed::keyspace::Stats;
pub use keyed::overflow::WhenFull;
pub use limiter::all_of::{AllDenied, AllOf, TokenSet, Tokens, all_of};
pub use limiter::ask::Ask;
pub use limiter::asked::Asked;
pub use limiter::builder::{Builder, LimitBuilder};
pub use limiter::janitor::Janitor;
pub use limiter::keyed::{Keyed, PinnedKey, Shared};
pub use limiter::limit::{Limit, TokenBucket, WindowCounter};
pub use limiter::pinned::Pinned;
pub use limiter::rate_limiter::RateLimiter;
pub use limiter::rule::{Plan, Rule};
pub use limiter::state::bytes::NotRestored;
pub use limiter::state::key_bytes::KeyBytes;
pub use limiter::wait::Limited;
pub use rule::any_rule::AnyRule;
pub use rule::error::InvalidRule;
pub use rule::places::Places;
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

/// The programs for users of governor run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/from-governor.md")]
mod from_governor {}

// The programs of these pages run as tests of `examples/web`, which has the crates that they need.
#[cfg(all(doc, not(doctest)))]
#[doc = include_str!("../docs/recipes.md")]
pub mod _recipes {}

#[cfg(all(doc, not(doctest)))]
#[doc = include_str!("../docs/faq.md")]
pub mod _faq {}

#[cfg(all(doc, not(doctest)))]
#[doc = include_str!("../docs/cheatsheet.md")]
pub mod _cheatsheet {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/state.md")]
pub mod _state {}
