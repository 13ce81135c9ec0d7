//! Waiting by tokio's timer.

use std::time::Duration;

use super::delay::DelayLayer;

impl DelayLayer {
    /// Lets requests wait for up to `max_delay`, by tokio's timer.
    ///
    /// A request that has to wait panics outside of a tokio runtime, or in one without its timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::tower::DelayLayer;
    ///
    /// let delay = DelayLayer::new(Duration::from_millis(500)).max_waiting(100);
    /// # let _ = delay;
    /// ```
    #[must_use]
    pub fn new(max_delay: Duration) -> DelayLayer {
        DelayLayer::by_timer(max_delay, tokio::time::sleep)
    }
}
