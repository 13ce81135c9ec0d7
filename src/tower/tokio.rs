//! Waiting by tokio's timer.

use std::hash::Hash;
use std::time::Duration;

use super::builder::LayerBuilder;

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Lets a request over its limits wait for its turn, for up to `max_delay`, instead of refusing
    /// it.
    ///
    /// Each waiting request has a [reservation](crate::RateLimiter::reserve) at each limit:
    /// requests of a key are passed on in the order in which they came, at the limit's rate. Tokens
    /// may be owed up to the bound on [debt](crate::Builder::max_debt), a burst by default. A
    /// window has no reservations: a request over a window is refused.
    ///
    /// * A request that would wait longer is refused at once. Its `Retry-After` is the time until
    ///   the limit that refused would let it wait.
    /// * At most [`max_waiting`](LayerBuilder::max_waiting) requests of the layer wait at a time.
    ///   The next one is refused.
    /// * A client that goes away, so that the response's future is dropped, gives its place back:
    ///   all its tokens, if no later request took tokens of the key. Otherwise later ones keep the
    ///   times that they were promised.
    /// * The response tells the wait: `Server-Timing: ratelimit;dur=250`, in milliseconds
    ///   (<https://www.w3.org/TR/server-timing/>). The service inside finds it in
    ///   [`Decision::delay`](super::Decision::delay).
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
