//! A layer that lets requests wait for their tokens.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::rate_limit::RateLimit;
use crate::layer::decide::line::{WaitingLine, owner_of};
use crate::layer::limit::limiter::{Sleep, Timer};
use crate::request::key::KeyFrom;

/// A layer that lets requests over their limits wait for their turn, instead of a refusal. It goes
/// directly over a [`RateLimit`], whose limits and options it uses.
///
/// Each waiting request has a place in line at each limit: requests of a key are passed on in the
/// order in which they came, at the limit's rate. A window has no tokens to come: a request over a
/// window is refused.
///
/// * A request that would wait longer than `max_delay` is refused at once. With a `max_delay` of 0
///   no request waits. Its `Retry-After` is the time until the
///   limit that refused would let it wait. (A lower quota that is set meanwhile may make a wait
///   longer.)
/// * At most [`max_waiting`](DelayLayer::max_waiting) requests of the rate limit wait at a time,
///   and of each key at most [`max_waiting_per_key`](DelayLayer::max_waiting_per_key). An
///   [owner](DelayLayer::owner) of requests, the address by default, waits with at most as many as
///   places are free. The next request is refused.
/// * A request that is exempt, of a banned key, or of a key that is not enforced does not wait.
/// * A client that goes away, so that the response's future is dropped, gives its place to the
///   requests behind it, and gives back the tokens that it had got.
/// * The request is decided on, counted and shown when its wait ends. The response tells the wait:
///   `Server-Timing: ratelimit;dur=250`, in milliseconds (<https://www.w3.org/TR/server-timing/>).
///   The service inside finds it in [`Decision::delay`](crate::Decision::delay).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_http::{ClientIp, DelayLayer, RateLimitLayer};
///
/// let limits = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(10)))
///     .key(ClientIp::peer())
///     .build();
/// // Over the limits: `delay.layer(limits.layer(service))`.
/// let delay = DelayLayer::by_timer(Duration::from_millis(500), |wait| async move {
///     // The timer of a runtime.
///     # let _ = wait;
/// });
/// # let _ = (limits, delay.max_waiting(100).max_waiting_per_key(10));
/// ```
#[derive(Clone)]
pub struct DelayLayer {
    line: Arc<WaitingLine>,
}

impl DelayLayer {
    /// Lets requests wait for up to `max_delay`, by a given timer.
    ///
    /// `sleep(wait)` returns a future that ends after `wait`. It is called when a wait begins, and
    /// again when its time changes.
    pub fn by_timer<F>(
        max_delay: Duration,
        sleep: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> DelayLayer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let sleep: Sleep = Arc::new(move |wait| -> Timer { Box::pin(sleep(wait)) });
        DelayLayer { line: Arc::new(WaitingLine::new(max_delay, sleep)) }
    }

    /// Lets requests wait for up to `max_delay`, by tokio's timer.
    ///
    /// A request that has to wait panics outside of a tokio runtime, or in one without its timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_http::DelayLayer;
    ///
    /// let delay = DelayLayer::new(Duration::from_millis(500)).max_waiting(100);
    /// # let _ = delay;
    /// ```
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn new(max_delay: Duration) -> DelayLayer {
        DelayLayer::by_timer(max_delay, tokio::time::sleep)
    }

    pub(super) fn line(&self) -> &Arc<WaitingLine> {
        &self.line
    }

    /// Sets the most requests that wait for their turn at a time: 1,024 by default. With 0 no
    /// request waits.
    #[must_use]
    pub fn max_waiting(mut self, max_waiting: usize) -> DelayLayer {
        Arc::make_mut(&mut self.line).max_waiting = max_waiting;
        self
    }

    /// Sets the most requests of one key that wait for their turn at a time: by default an eighth
    /// of [`max_waiting`](DelayLayer::max_waiting), at least 16.
    ///
    /// With 0 no request waits. Without such a bound a few busy keys fill the line, and requests of
    /// all other keys are refused that could wait. It is the `burst` of nginx's `limit_req`, which
    /// counts for each key as well. For requests without a key there are `max_waiting` and the
    /// [owner](DelayLayer::owner).
    #[must_use]
    pub fn max_waiting_per_key(mut self, max_waiting: usize) -> DelayLayer {
        Arc::make_mut(&mut self.line).of_a_key = Some(max_waiting);
        self
    }

    /// Sets the owner of requests, of which no keys can be made up: by default the peer's address,
    /// as [`ClientIp::peer`](crate::ClientIp::peer) finds it.
    ///
    /// An owner gets a place in line only while it holds fewer places than are free, whatever the
    /// keys of its requests. So a client that makes up keys takes half of the line at most, and
    /// others find a place. A request without an owner has no such bound.
    ///
    /// Behind a proxy all requests have one peer, and share that half: name the client by the list
    /// of the proxy.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_http::{ClientIp, DelayLayer, HopList, Trust};
    ///
    /// let delay = DelayLayer::by_timer(Duration::from_millis(500), |_| std::future::ready(()))
    ///     .owner(ClientIp::peer().behind(HopList::XForwardedFor, Trust::hops(1)));
    /// # let _ = delay;
    /// ```
    #[must_use]
    pub fn owner(mut self, owner: impl KeyFrom + 'static) -> DelayLayer {
        Arc::make_mut(&mut self.line).owner = owner_of(owner);
        self
    }
}

impl<T> Layer<RateLimit<T>> for DelayLayer {
    type Service = RateLimit<T>;

    fn layer(&self, inner: RateLimit<T>) -> RateLimit<T> {
        RateLimit { line: Some(self.line.clone()), ..inner }
    }
}

impl fmt::Debug for DelayLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayLayer").field("max_delay", &self.line.max_delay).finish_non_exhaustive()
    }
}
