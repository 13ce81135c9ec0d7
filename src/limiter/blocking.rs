//! Waiting for tokens: reserve, sleep, commit.
//!
//! There is no queue. A reservation is a slot of time, and each thread wakes from its own sleep.
//! Threads are therefore served first come, first served, and each wake-up gets its tokens.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::thread;
use std::time::Duration;

use crate::bucket::reservation::{Reservation, Reserved};
use crate::keyed::key::ToKey;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::token_bucket::TokenBucket;
use crate::time::clock::nanos_of;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

/// Longest wait of a caller that set none, in nanoseconds.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

/// Shortest time between two tries for a reservation, when the debt is at its bound.
pub(crate) const MIN_POLL: Duration = Duration::from_millis(1);

/// A source of reservations with at most a given wait, in nanoseconds, and the jitter of each wait.
pub(crate) struct Waiter<'a> {
    reserve: Box<dyn Fn(u64) -> Reserved<'a> + Send + Sync + 'a>,
    jitter: Jitter,
}

impl<'a> Waiter<'a> {
    pub(crate) fn reserve(&self, max_wait: u64) -> Reserved<'a> {
        (self.reserve)(max_wait)
    }

    pub(crate) fn wait(&self, reservation: &Reservation<'_>) -> Duration {
        wait(reservation, self.jitter, NO_LIMIT)
    }

    pub(crate) fn block(&self) -> Result<Granted, Denied> {
        let reservation = self.reserve(NO_LIMIT)?;
        thread::sleep(self.wait(&reservation));
        Ok(reservation.commit())
    }
}

/// Returns the time to sleep for a reservation.
///
/// Jitter never makes the wait longer than the caller's `max_wait`, in nanoseconds.
pub(crate) fn wait(reservation: &Reservation<'_>, jitter: Jitter, max_wait: u64) -> Duration {
    let delay = reservation.delay();
    if delay.is_zero() {
        delay
    } else {
        jitter.added_to(delay).min(Duration::from_nanos(max_wait).max(delay))
    }
}

fn block(reservation: Reservation<'_>, jitter: Jitter, max_wait: u64) -> Result<Granted, Denied> {
    thread::sleep(wait(&reservation, jitter, max_wait));
    Ok(reservation.commit())
}

impl TokenBucket {
    /// Waits for a token, and takes it.
    ///
    /// The bucket's clock sets the length of the wait, and the thread sleeps by the system's clock.
    ///
    /// Threads are served first come, first served: each has a [reservation](TokenBucket::reserve).
    /// The tokens of all waiting threads may add up to [one burst](crate::BucketBuilder::max_debt)
    /// by default: a bucket with a burst of 1 lets one thread wait.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait, if the debt would pass its bound.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// for _ in 0..3 {
    ///     bucket.blocking_acquire()?; // the second and third a millisecond later each
    /// }
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn blocking_acquire(&self) -> Result<Granted, Denied> {
        self.blocking_acquire_n(1)
    }

    /// Waits for `n` tokens, and takes them.
    ///
    /// See [`blocking_acquire`](TokenBucket::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the debt would pass its bound or `n` is over the burst.
    pub fn blocking_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        block(self.reserve_for(n, NO_LIMIT)?, self.extras.jitter, NO_LIMIT)
    }

    /// Waits at most `max_wait` for a token, and takes it.
    ///
    /// See [`blocking_acquire`](TokenBucket::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the token would come later, or the debt would pass its bound.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, Reason, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_hour(1));
    /// assert!(bucket.blocking_acquire().is_ok());
    /// let denied = bucket.blocking_acquire_within(Duration::from_millis(5)).unwrap_err();
    /// assert_eq!(denied.reason(), Reason::Deadline);
    /// ```
    pub fn blocking_acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        self.blocking_acquire_n_within(1, max_wait)
    }

    /// Waits at most `max_wait` for `n` tokens, and takes them.
    ///
    /// See [`blocking_acquire`](TokenBucket::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the tokens would come later, the debt would pass its bound, or `n` is
    /// over the burst.
    pub fn blocking_acquire_n_within(&self, n: u64, max_wait: Duration) -> Result<Granted, Denied> {
        let max_wait = nanos_of(max_wait);
        block(self.reserve_for(n, max_wait)?, self.extras.jitter, max_wait)
    }

    /// Returns an iterator that waits for a token in each call of `next`.
    ///
    /// A loop over it runs at the bucket's rate.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// for (page, _) in ["/1", "/2", "/3"].iter().zip(bucket.paced()) {
    ///     println!("GET {page}");
    /// }
    /// ```
    pub fn paced(&self) -> Paced<'_> {
        Paced(self.gate())
    }

    pub(crate) fn gate(&self) -> Waiter<'_> {
        Waiter { reserve: Box::new(|max_wait| self.reserve_for(1, max_wait)), jitter: self.extras.jitter }
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> RateLimiter<K, S> {
    /// Waits for a token of the key's bucket, and takes it. See [`TokenBucket::blocking_acquire`].
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait, if the [debt](crate::Builder::max_debt) would pass its
    /// bound.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_second(1_000).burst(1));
    /// limiter.blocking_acquire("example.org")?;
    /// limiter.blocking_acquire("example.org")?; // a millisecond later
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn blocking_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.blocking_acquire_n(key, 1)
    }

    /// Waits for `n` tokens, and takes them.
    ///
    /// See [`blocking_acquire`](RateLimiter::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the debt would pass its bound or `n` is over the burst.
    pub fn blocking_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        block(self.reserve_for(key, n, NO_LIMIT)?, self.inner.extras.jitter, NO_LIMIT)
    }

    /// Waits at most `max_wait` for a token, and takes it.
    ///
    /// See [`blocking_acquire`](RateLimiter::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the token would come later, or the debt would pass its bound.
    pub fn blocking_acquire_within<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        max_wait: Duration,
    ) -> Result<Granted, Denied> {
        self.blocking_acquire_n_within(key, 1, max_wait)
    }

    /// Waits at most `max_wait` for `n` tokens, and takes them.
    ///
    /// See [`blocking_acquire`](RateLimiter::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the tokens would come later, the debt would pass its bound, or `n` is
    /// over the burst.
    pub fn blocking_acquire_n_within<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: u64,
        max_wait: Duration,
    ) -> Result<Granted, Denied> {
        let max_wait = nanos_of(max_wait);
        block(self.reserve_for(key, n, max_wait)?, self.inner.extras.jitter, max_wait)
    }

    /// Returns an iterator that waits for a token of the key's bucket in each call of `next`.
    ///
    /// See [`TokenBucket::paced`].
    pub fn paced<'a, Q: ToKey<K> + Sync + ?Sized>(&'a self, key: &'a Q) -> Paced<'a> {
        Paced(self.gate(key))
    }

    pub(crate) fn gate<'a, Q: ToKey<K> + Sync + ?Sized>(&'a self, key: &'a Q) -> Waiter<'a> {
        let reserve = Box::new(move |max_wait| self.reserve_for(key, 1, max_wait));
        Waiter { reserve, jitter: self.inner.extras.jitter }
    }
}

impl<'a, K, Q, S> KeyLimit<'a, K, Q, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync,
{
    /// Waits for the tokens, and takes them. See [`TokenBucket::blocking_acquire`].
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the debt would pass its bound or [`n`](KeyLimit::n) the burst.
    pub fn blocking_acquire(&self) -> Result<Granted, Denied> {
        block(self.reserve()?, self.inner().extras.jitter, NO_LIMIT)
    }

    /// Waits at most `max_wait` for the tokens, and takes them.
    ///
    /// See [`blocking_acquire`](KeyLimit::blocking_acquire).
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the tokens would come later, the debt would pass its bound, or
    /// [`n`](KeyLimit::n) is over the burst.
    pub fn blocking_acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        block(self.reserve_within(max_wait)?, self.inner().extras.jitter, nanos_of(max_wait))
    }
}

/// An iterator of tokens at the bucket's rate; see [`TokenBucket::paced`].
///
/// The iterator ends only if no token can ever come: at a limiter of 0 keys that denies.
pub struct Paced<'a>(Waiter<'a>);

impl Iterator for Paced<'_> {
    type Item = Granted;

    /// Waits for a token. If the debt is at its bound, waits for a reservation first.
    fn next(&mut self) -> Option<Granted> {
        loop {
            match self.0.block() {
                Ok(granted) => return Some(granted),
                Err(denied) => thread::sleep(denied.retry_after()?.max(MIN_POLL)),
            }
        }
    }
}

impl fmt::Debug for Paced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").finish_non_exhaustive()
    }
}
