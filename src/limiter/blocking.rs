//! Waiting for tokens: reserve, sleep, commit.
//!
//! There is no queue: a reservation is a place in line, and each sleeper wakes by itself. So waiting is first come,
//! first served, and nobody is woken in vain.

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

/// As long as it takes, in nanoseconds.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

/// Who waits for a place in line looks no more often than this.
pub(crate) const MIN_POLL: Duration = Duration::from_millis(1);

/// A place to wait at: reserves with so much patience, in nanoseconds, and says what to add to each wait.
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

/// How long to sleep for a reservation: jitter never makes it longer than the caller's patience.
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
    /// Waits for a token, and takes it. Sleeps the thread; the wait is by the system's clock, from a time that is
    /// promised by the bucket's.
    ///
    /// Waiters are served first come, first served: each has a [reservation](TokenBucket::reserve). There is room in line
    /// for [one burst](crate::BucketBuilder::max_debt) unless you say more: a bucket with a burst of 1 lets one wait.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait, if as much is promised already.
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

    /// As [`blocking_acquire`](TokenBucket::blocking_acquire), for `n` tokens.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if as much is promised already or `n` is over the burst.
    pub fn blocking_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        block(self.reserve_for(n, NO_LIMIT)?, self.extras.jitter, NO_LIMIT)
    }

    /// As [`blocking_acquire`](TokenBucket::blocking_acquire), if it takes no longer than `max_wait`.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the token would come later, or as much is promised already.
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

    /// As [`blocking_acquire_within`](TokenBucket::blocking_acquire_within), for `n` tokens.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the tokens would come later, as much is promised already, or `n` is over the burst.
    pub fn blocking_acquire_n_within(&self, n: u64, max_wait: Duration) -> Result<Granted, Denied> {
        let max_wait = nanos_of(max_wait);
        block(self.reserve_for(n, max_wait)?, self.extras.jitter, max_wait)
    }

    /// A token each time `next` is called, waiting for it: a loop over it goes round at the bucket's rate.
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
    /// [`Denied`] at once, without a wait, if [as much](crate::Builder::max_debt) is promised already.
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

    /// As [`blocking_acquire`](RateLimiter::blocking_acquire), for `n` tokens.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if as much is promised already or `n` is over the burst.
    pub fn blocking_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        block(self.reserve_for(key, n, NO_LIMIT)?, self.inner.extras.jitter, NO_LIMIT)
    }

    /// As [`blocking_acquire`](RateLimiter::blocking_acquire), if it takes no longer than `max_wait`.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the token would come later, or as much is promised already.
    pub fn blocking_acquire_within<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        max_wait: Duration,
    ) -> Result<Granted, Denied> {
        self.blocking_acquire_n_within(key, 1, max_wait)
    }

    /// As [`blocking_acquire_within`](RateLimiter::blocking_acquire_within), for `n` tokens.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the tokens would come later, as much is promised already, or `n` is over the burst.
    pub fn blocking_acquire_n_within<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: u64,
        max_wait: Duration,
    ) -> Result<Granted, Denied> {
        let max_wait = nanos_of(max_wait);
        block(self.reserve_for(key, n, max_wait)?, self.inner.extras.jitter, max_wait)
    }

    /// A token of the key's bucket each time `next` is called, waiting for it. See [`TokenBucket::paced`].
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
    /// Waits for the tokens, and takes them; see [`TokenBucket::blocking_acquire`].
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if as much is promised already or there are never so many.
    pub fn blocking_acquire(&self) -> Result<Granted, Denied> {
        block(self.reserve()?, self.inner().extras.jitter, NO_LIMIT)
    }

    /// As [`blocking_acquire`](KeyLimit::blocking_acquire), if it takes no longer than `max_wait`.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, if the tokens would come later, as much is promised already or there are never so many.
    pub fn blocking_acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        block(self.reserve_within(max_wait)?, self.inner().extras.jitter, nanos_of(max_wait))
    }
}

/// Tokens at the rate they come; see [`TokenBucket::paced`]. It ends only where none ever comes: at a limiter of no
/// keys that denies.
pub struct Paced<'a>(Waiter<'a>);

impl Iterator for Paced<'_> {
    type Item = Granted;

    /// Waits for a token; where the line is full, for a place in it.
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
