//! Waiting by tokio's timer.

use std::hash::Hash;
use std::time::Duration;

use super::builder::LayerBuilder;

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Lets a request over its limits wait for its turn, for up to `max_delay`, instead of refusing
    /// it.
    ///
    /// Each waiting request has a place in line at each limit: requests of a key are passed on in
    /// the order in which they came, at the limit's rate. A window has no tokens to come: a request
    /// over a window is refused.
    ///
    /// * A request that would wait longer is refused at once. Its `Retry-After` is the time until
    ///   the limit that refused would let it wait. (A lower quota that is set meanwhile may make a
    ///   wait longer.)
    /// * At most [`max_waiting`](LayerBuilder::max_waiting) requests of the layer wait at a time,
    ///   and of each key at most [`max_waiting_per_key`](LayerBuilder::max_waiting_per_key). The
    ///   next one is refused.
    /// * A client that goes away, so that the response's future is dropped, gives its place to the
    ///   requests behind it. If the request waits for several limits, the tokens of those whose
    ///   time has come are spent.
    /// * A request whose key is removed while it waits without a place is decided on again.
    /// * The response tells the longest wait, as of its arrival: `Server-Timing:
    ///   ratelimit;dur=250`, in milliseconds (<https://www.w3.org/TR/server-timing/>). The service
    ///   inside finds it in [`Decision::delay`](super::Decision::delay).
    /// * A request that has to wait panics outside of a tokio runtime, or in one without its timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::http::ClientIp;
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(10)))
    ///     .key(ClientIp::peer())
    ///     .delay_up_to(Duration::from_millis(500))
    ///     .max_waiting(100)
    ///     .build();
    /// # assert_eq!(layer.stats().waiting, 0);
    /// ```
    pub fn delay_up_to(self, max_delay: Duration) -> Self {
        self.delay_with(max_delay, tokio::time::sleep)
    }
}
