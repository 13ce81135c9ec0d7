//! Feature `tokio`: waiting for tokens in tasks, by tokio's timer.

use std::future::poll_fn;
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ::tokio::time::{Instant, sleep};

use crate::keyed::key::ToKey;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::limited::Limited;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::token_bucket::TokenBucket;
use crate::limiter::waiting::{NO_LIMIT, NextStep, Waiter, WaitsInLine};
use crate::time::clock::nanos_of;
use crate::word::decision::{Denied, Granted};

/// Longer than any wait of a timer.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// Waits for the tokens of a request in a task. A dropped future leaves the line.
async fn wait(request: impl WaitsInLine, max_wait: u64) -> Result<Granted, Denied> {
    let mut waiter = Waiter::new(request, max_wait);
    let first = match poll_fn(|cx| Poll::Ready(waiter.poll(false, cx.waker()))).await {
        NextStep::Done(decision) => return decision,
        NextStep::Sets(wait) => wait,
        NextStep::Waits => FAR,
    };
    let mut timer = pin!(sleep(first));
    let mut over = false;
    poll_fn(|cx| {
        loop {
            // A timer that is over is not polled again.
            over = over || timer.as_mut().poll(cx).is_ready();
            match waiter.poll(over, cx.waker()) {
                NextStep::Done(decision) => return Poll::Ready(decision),
                NextStep::Sets(wait) => {
                    timer.as_mut().reset(Instant::now() + wait.min(FAR));
                    over = false;
                }
                NextStep::Waits => return Poll::Pending,
            }
        }
    })
    .await
}

impl TokenBucket {
    /// Waits for a token, and takes it.
    ///
    /// The first poll takes a place in line. Tasks are served first come, first served, at any
    /// number of tasks. Tokio's timer wakes each task when its tokens are due, at most a
    /// millisecond late.
    ///
    /// A future that is dropped while it waits leaves the line, and all behind it move up. After
    /// its time has come it has spent its tokens, even if it was not polled since.
    ///
    /// Any number of tasks may wait, unless [`max_waiting`](crate::BucketBuilder::max_waiting) is
    /// set. In a test with tokio's clock paused, the bucket needs a clock that [stands with
    /// it](crate::Clock::from_fn).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a sleep, if the line is full. A verb with `n` also refuses more
    /// tokens than the burst: see [`hold`](TokenBucket::hold) for a cost that is larger. A verb
    /// with `max_wait` also refuses a longer wait, at once or, after a lower quota was set, late.
    /// A limiter may also refuse a new key, with [`Reason::Full`](crate::Reason::Full).
    ///
    /// # Panics
    ///
    /// Panics if a wait begins outside of a tokio runtime, or in one without its timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// static CALLS: TokenBucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// CALLS.acquire().await?;
    /// CALLS.acquire().await?; // a millisecond later
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Granted, Denied> {
        self.acquire_n(1).await
    }

    /// Waits for `n` tokens, and takes them; see [`acquire`](Self::acquire).
    pub async fn acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        wait(self.n(n), NO_LIMIT).await
    }

    /// Waits for a token, and takes it, if it comes within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// let bucket = TokenBucket::new(Quota::per_hour(1));
    /// bucket.acquire().await?;
    /// assert!(bucket.acquire_within(Duration::from_secs(1)).await.is_err()); // now, not in a second
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        self.acquire_n_within(1, max_wait).await
    }

    /// Waits for `n` tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`acquire`](Self::acquire).
    pub async fn acquire_n_within(&self, n: u64, max_wait: Duration) -> Result<Granted, Denied> {
        wait(self.n(n), nanos_of(max_wait)).await
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> RateLimiter<K, S> {
    /// Waits for a token of the key's bucket; see [`TokenBucket::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// let per_host = RateLimiter::<String>::new(Quota::per_second(1_000).burst(1));
    /// per_host.acquire("example.org").await?;
    /// per_host.acquire("example.org").await?; // a millisecond later
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.key(key).acquire().await
    }

    /// Waits for `n` tokens of the key's bucket, and takes them; see [`TokenBucket::acquire`].
    pub async fn acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.key(key).n(n).acquire().await
    }

    /// Waits for a token, and takes it, if it comes within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::acquire`].
    pub async fn acquire_within<Q>(&self, key: &Q, max_wait: Duration) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.key(key).acquire_within(max_wait).await
    }

    /// Waits for `n` tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::acquire`].
    pub async fn acquire_n_within<Q>(&self, key: &Q, n: u64, max_wait: Duration) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.key(key).n(n).acquire_within(max_wait).await
    }
}

impl<K, Q, S> KeyLimit<'_, K, Q, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync,
{
    /// Waits for the tokens; see [`TokenBucket::acquire`].
    pub async fn acquire(&self) -> Result<Granted, Denied> {
        wait(self, NO_LIMIT).await
    }

    /// Waits for the tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::acquire`].
    pub async fn acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        wait(self, nanos_of(max_wait)).await
    }
}

impl<F> Limited<'_, F> {
    /// Waits for a token and takes it, then calls the function and awaits its future.
    ///
    /// The wait is that of [`TokenBucket::acquire`]. A call that is dropped while it waits leaves
    /// the line. After the wait the token is spent, even if the function fails.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait or a call, if the line is
    /// [full](crate::BucketBuilder::max_waiting). A limiter may also refuse a new key, with
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
    /// let fetch = CALLS.limited(|path: &'static str| async move { format!("GET {path}") });
    /// assert_eq!(fetch.call("/1").await?, "GET /1");
    /// assert_eq!(fetch.call("/2").await?, "GET /2"); // a millisecond later
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call<A, T: Future>(&self, argument: A) -> Result<T::Output, Denied>
    where
        F: Fn(A) -> T,
    {
        let _ = wait(&self.request, NO_LIMIT).await?;
        Ok((self.action)(argument).await)
    }
}
