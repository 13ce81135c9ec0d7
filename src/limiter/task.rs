//! Waiting for tokens in a task, by a timer of the caller.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::waiting::{NextStep, Waiter, WaitsInLine};
use crate::rule::rate::Quota;
use crate::word::decision::{Denied, Granted};

/// Waits for the tokens of a request in a task. A dropped future leaves the line.
pub(super) async fn wait<T: Future<Output = ()>>(
    request: impl WaitsInLine,
    sleep: impl Fn(Duration) -> T,
) -> Result<Granted, Denied> {
    let mut waiter = Waiter::new(request);
    let mut timer = pin!(None::<T>);
    poll_fn(|cx| {
        loop {
            // No timer is polled after its end: `Waits` is the step of a timer that has not fired.
            let fired = timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
            match waiter.poll(fired, cx.waker()) {
                NextStep::Done(decision) => return Poll::Ready(decision),
                NextStep::Sets(wait) => timer.set(Some(sleep(wait))),
                NextStep::Waits => return Poll::Pending,
            }
        }
    })
    .await
}

impl<'a, B: Asked<'a, Rule = Quota>> Ask<'_, B> {
    /// Waits for the tokens in this task by the caller's timer, and takes them.
    ///
    /// `sleep(wait)` returns a future that ends after `wait`, which is at most 584 years. A change
    /// of the rule, and a caller in front that leaves the line, make another one. A future that
    /// never ends leaves its task asleep after its tokens are due. With feature `tokio`, `acquire`
    /// has tokio's timer.
    ///
    /// Tokens that are there are taken without a timer, and so is a request for 0 tokens.
    ///
    /// The first poll takes a place in line. Tasks and threads are served first come, first served.
    /// A future that is dropped while it waits leaves the line, and all behind it move up. After
    /// its time has come it has spent its tokens, even if it was not polled since. Any number may
    /// wait, unless [`max_waiting`](crate::LimitBuilder::max_waiting) is set.
    ///
    /// # Errors
    ///
    /// As [`blocking_acquire`](Ask::blocking_acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(1_000).burst(1));
    /// limiter.key(&7).acquire_by(tokio::time::sleep).await?;
    /// limiter.key(&7).acquire_by(tokio::time::sleep).await?; // a millisecond later
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_by<T>(self, sleep: impl Fn(Duration) -> T) -> Result<Granted, Denied>
    where
        T: Future<Output = ()>,
    {
        wait(self, sleep).await
    }
}
