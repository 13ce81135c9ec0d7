//! Feature `tokio`: waiting for tokens in tasks, by tokio's timer.

use std::time::Duration;

use ::tokio::time::{Sleep, sleep};

use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::wait::{Limited, wait};
use crate::rule::rate::Quota;
use crate::word::decision::{Denied, Granted};

/// Longer than any wait of a timer.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

fn timer(wait: Duration) -> Sleep {
    sleep(wait.min(FAR))
}

impl<'a, B: Asked<'a, Rule = Quota>> Ask<'_, B> {
    /// Waits for the tokens in this task, and takes them. A grant is no [`Hold`](crate::Hold): see
    /// [`hold`](Ask::hold) for a cost that is not yet known.
    ///
    /// The first poll takes a place in line. Tasks are served first come, first served, at any
    /// number of tasks. Tokio's timer wakes each task when its tokens are due, at most a
    /// millisecond late.
    ///
    /// A future that is dropped while it waits leaves the line, and all behind it move up. After
    /// its time has come it has spent its tokens, even if it was not polled since.
    ///
    /// Any number of tasks may wait, unless [`max_waiting`](crate::LimitBuilder::max_waiting) is
    /// set. In a test with tokio's clock paused, the bucket needs a clock that [stands with
    /// it](crate::Clock::from_fn).
    ///
    /// # Errors
    ///
    /// As [`blocking_acquire`](Ask::blocking_acquire).
    ///
    /// # Panics
    ///
    /// Panics if a wait begins outside of a tokio runtime, or in one without its timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// static CALLS: TokenBucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// CALLS.ask().acquire().await?;
    /// CALLS.ask().acquire().await?; // a millisecond later
    ///
    /// static SLOW: TokenBucket = TokenBucket::new(Quota::per_hour(1));
    /// SLOW.ask().acquire().await?;
    /// let second = SLOW.ask().within(Duration::from_secs(1));
    /// assert!(second.acquire().await.is_err()); // now, not in a second
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(self) -> Result<Granted, Denied> {
        wait(self, timer).await
    }
}

impl<'a, B: Asked<'a>, F> Limited<'_, B, F> {
    /// Waits for a token and takes it, then calls the function and awaits its future.
    ///
    /// The wait is that of [`Ask::acquire`]. A call that is dropped while it waits leaves
    /// the line. After the wait the token is spent, even if the function fails.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait or a call, if the line is
    /// [full](crate::LimitBuilder::max_waiting). A limiter may also refuse a new key, with
    /// [`Reason::Full`](crate::Reason::Full).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// static CALLS: TokenBucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// let fetch = CALLS.ask().limited(|path: &'static str| async move { format!("GET {path}") });
    /// assert_eq!(fetch.call("/1").await?, "GET /1");
    /// assert_eq!(fetch.call("/2").await?, "GET /2"); // a millisecond later
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call<A, T: Future>(&self, argument: A) -> Result<T::Output, Denied>
    where
        F: Fn(A) -> T,
    {
        let _ = wait(self.request, timer).await?;
        Ok((self.action)(argument).await)
    }
}
