//! Feature `tokio`: waiting in tasks. Reserve, sleep on tokio's timer, commit.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::time::{Sleep, sleep};
use futures_core::Stream;

use crate::bucket::reservation::Reservation;
use crate::keyed::key::ToKey;
use crate::limiter::blocking::{Due, MIN_POLL, NO_LIMIT, Waiter};
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::limited::Limited;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::token_bucket::TokenBucket;
use crate::time::clock::nanos_of;
use crate::word::decision::{Denied, Granted};

impl Due<'_> {
    /// Sleeps on tokio's timer, and commits.
    ///
    /// A future that is dropped during the sleep drops the reservation, which gives back its tokens
    /// as far as it may.
    async fn wait(self) -> Granted {
        if !self.sleep.is_zero() {
            sleep(self.sleep).await;
        }
        self.reservation.commit()
    }
}

impl TokenBucket {
    /// Waits for a token, and takes it.
    ///
    /// The first poll makes a [reservation](TokenBucket::reserve). Tasks are served first come,
    /// first served, at any number of tasks. Tokio's timer wakes each task when its reservation is
    /// due, at most a millisecond late.
    ///
    /// A future that is dropped while it waits gives its token back, as a dropped [`Reservation`]
    /// does.
    ///
    /// The tokens of all waiting tasks may add up to [one burst](crate::BucketBuilder::max_debt) by
    /// default: a bucket with a burst of 1 lets one task wait. In a test with tokio's clock paused,
    /// the bucket needs a clock that [stands with it](crate::Clock::from_fn).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a sleep, if the debt would pass its bound. A verb with `n` also
    /// refuses more tokens than the burst. A verb with `max_wait` also refuses a longer wait. A
    /// limiter may also refuse a new key, with [`Reason::Full`](crate::Reason::Full).
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
        Ok(self.due(n, NO_LIMIT)?.wait().await)
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
        Ok(self.due(n, nanos_of(max_wait))?.wait().await)
    }

    /// Returns a stream of tokens at the bucket's rate: [`paced`](TokenBucket::paced) for tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::StreamExt;
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let bucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// let mut pages = bucket.paced_stream().zip(futures_util::stream::iter(["/1", "/2", "/3"]));
    /// while let Some((_, page)) = pages.next().await {
    ///     println!("GET {page}");
    /// }
    /// # }
    /// ```
    pub fn paced_stream(&self) -> PacedStream<'_> {
        PacedStream { waiter: self.waiter(), next: None }
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

    /// Returns a stream of tokens of the key's bucket; see [`TokenBucket::paced_stream`].
    pub fn paced_stream<'a, Q: ToKey<K> + Sync + ?Sized>(&'a self, key: &'a Q) -> PacedStream<'a> {
        PacedStream { waiter: self.waiter(key), next: None }
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
        Ok(self.due(NO_LIMIT)?.wait().await)
    }

    /// Waits for the tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::acquire`].
    pub async fn acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        Ok(self.due(nanos_of(max_wait))?.wait().await)
    }
}

/// A stream of tokens at the bucket's rate, for tasks; see [`TokenBucket::paced_stream`].
///
/// The stream ends only if no token can ever come: at a limiter of 0 keys that denies.
///
/// A stream that is dropped while it waits gives its token back, as a dropped [`Reservation`] does.
pub struct PacedStream<'a> {
    waiter: Waiter<'a>,
    /// The reservation and the sleep in progress.
    ///
    /// `None` in place of the reservation: the sleep precedes the next try for one.
    next: Option<(Option<Reservation<'a>>, Pin<Box<Sleep>>)>,
}

impl Stream for PacedStream<'_> {
    type Item = Granted;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Granted>> {
        let this = self.get_mut();
        loop {
            if let Some((_, sleep)) = &mut this.next {
                ready!(sleep.as_mut().poll(cx));
                if let Some((Some(reservation), _)) = this.next.take() {
                    return Poll::Ready(Some(reservation.commit()));
                }
            }
            let (reservation, wait) = match (this.waiter)(NO_LIMIT) {
                Ok(due) if due.sleep.is_zero() => return Poll::Ready(Some(due.reservation.commit())),
                Ok(due) => (Some(due.reservation), due.sleep),
                Err(denied) => match denied.retry_after() {
                    Some(wait) => (None, wait.max(MIN_POLL)),
                    None => return Poll::Ready(None),
                },
            };
            this.next = Some((reservation, Box::pin(sleep(wait))));
        }
    }
}

impl fmt::Debug for PacedStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedStream").field("waits", &self.next.is_some()).finish_non_exhaustive()
    }
}

impl<F> Limited<'_, F> {
    /// Waits for a token and takes it, then calls the function and awaits its future.
    ///
    /// The wait is that of [`TokenBucket::acquire`]. A call that is dropped while it waits gives
    /// its token back, as a dropped [`Reservation`] does. After the wait the token is spent, even
    /// if the function fails.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait or a call, if the debt would pass
    /// [its bound](crate::BucketBuilder::max_debt), one burst by default. A limiter may also refuse
    /// a new key, with [`Reason::Full`](crate::Reason::Full).
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
        let _ = (self.waiter)(NO_LIMIT)?.wait().await;
        Ok((self.action)(argument).await)
    }
}
