//! One bucket, its terms and its clock.

use std::fmt;

use crossbeam_utils::CachePadded;

use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::decision::{Denied, Granted, Snapshot};
use crate::quota::Quota;
use crate::state::Outcome;
use crate::sync::const_fn;
use crate::terms::Terms;

/// One token bucket, shared by reference between threads.
///
/// It starts full. A grant is one compare-and-swap, a refusal writes nothing, nobody ever waits for a lock.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, TokenBucket};
///
/// static LIMIT: TokenBucket = TokenBucket::new(Quota::per_second(100).burst(200));
///
/// match LIMIT.try_acquire() {
///     Ok(granted) => println!("go on, {} left", granted.remaining()),
///     Err(denied) => println!("{denied}"),
/// }
/// ```
pub struct TokenBucket {
    // A line of its own: commits do not push the terms out of other cores' caches.
    bucket: CachePadded<Bucket>,
    terms: Terms,
    clock: Clock,
    quota: Quota,
}

impl TokenBucket {
    const_fn! {
        /// A full bucket on the [processor's counter](Clock::new).
        #[must_use]
        pub const fn new(quota: Quota) -> TokenBucket {
            TokenBucket::with_clock(quota, Clock::new())
        }
    }

    const_fn! {
        /// A full bucket on a clock of your own.
        #[must_use]
        pub const fn with_clock(quota: Quota, clock: Clock) -> TokenBucket {
            let terms = quota.compile();
            TokenBucket { bucket: CachePadded::new(Bucket::new()), terms, clock, quota }
        }
    }

    /// Takes one token, if there is one.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back.
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.try_acquire_n(1)
    }

    /// Takes `n` tokens, all or none. Taking 0 always succeeds and takes nothing.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, or that `n` is over the burst and never passes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bytes = TokenBucket::new(Quota::per_second(125_000_000).burst(64 * 1024));
    /// assert!(bytes.try_acquire_n(1500).is_ok());
    /// assert!(bytes.try_acquire_n(64 * 1024 + 1).is_err());
    /// ```
    #[inline]
    pub fn try_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        let terms = &self.terms;
        let need = match terms.need(n) {
            None => return Err(Denied::too_many(self.peek())),
            Some(0) => return Ok(self.peek().granted()),
            Some(need) => need,
        };
        let (outcome, now) = self.bucket.drive(
            || self.clock.nanos(),
            |state, now| {
                let (outcome, next) = state.take(terms, terms.ticks.tick(now), need);
                ((outcome, now), next)
            },
        );
        outcome.decision(terms, need, now)
    }

    /// Looks into the bucket and takes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_minute(6));
    /// assert_eq!(bucket.peek().remaining(), 6);
    /// ```
    pub fn peek(&self) -> Snapshot {
        let terms = &self.terms;
        self.bucket.drive(
            || self.clock.nanos(),
            |state, now| (Snapshot::new(terms, state.at(terms, terms.ticks.tick(now)), now), None),
        )
    }

    /// The quota the bucket was made with.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }
}

impl Outcome {
    /// The public form, for a take of `need` units at the reading `now`.
    #[inline]
    pub(crate) fn decision(self, terms: &Terms, need: u64, now: u64) -> Result<Granted, Denied> {
        if self.granted {
            Ok(Granted::new(terms, self.level, self.lag, now))
        } else {
            Err(Denied::empty(terms, need, self, now))
        }
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket")
            .field("quota", &format_args!("{}", self.quota))
            .field("remaining", &self.peek().remaining())
            .finish_non_exhaustive()
    }
}
