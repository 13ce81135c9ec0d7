//! Guards that own their limiter, for a task: the ledger of such a guard is an `Arc`.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Hold, Ledger, LedgerOf, Reservation};
use crate::keyed::key::ToKey;
use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::inner::Inner;
use crate::limiter::keyed::{Keyed, PinnedKey, Shared};
use crate::limiter::rule::Rule;
use crate::rule::rate::Quota;
use crate::word::decision::Denied;

impl<K: Hash + Eq, S> Ledger for Inner<K, S> {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        self.keyspace.settle(receipt, settle)
    }
}

/// A bucket of a limiter that guards can own.
pub(crate) trait Owned<'a>: Asked<'a> {
    fn owned_ledger(self) -> Arc<dyn Ledger + Send + Sync>;
}

impl<'a, K, Q, R, S> Owned<'a> for Keyed<'a, '_, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    fn owned_ledger(self) -> Arc<dyn Ledger + Send + Sync> {
        Arc::clone(self.owner) as _
    }
}

impl<'a, K, Q, R, S> Owned<'a> for PinnedKey<'a, '_, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    fn owned_ledger(self) -> Arc<dyn Ledger + Send + Sync> {
        self.bucket.owned_ledger()
    }
}

impl<'a, K, R, S> Owned<'a> for Shared<'a, K, R, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    R: Rule,
    S: Send + Sync + 'static,
{
    fn owned_ledger(self) -> Arc<dyn Ledger + Send + Sync> {
        Arc::clone(self.inner) as _
    }
}

#[expect(private_bounds, reason = "sealed")]
impl<'a, B: Owned<'a>> Ask<'_, B> {
    /// Takes the tokens as [`hold`](Self::hold) does. The hold owns a handle of the limiter.
    ///
    /// So a task or a thread can settle it, also when all other handles are dropped. It is for a
    /// key or for the [shared](crate::RateLimiter::shared) bucket of a
    /// [`RateLimiter`](crate::RateLimiter); a [`Limit`](crate::Limit) has no handle to own. The
    /// handle costs two changes of the count of an `Arc`.
    ///
    /// # Errors
    ///
    /// As [`hold`](Self::hold).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1_000));
    /// let hold = limiter.key(&1).n(400).hold_owned()?;
    /// std::thread::spawn(move || hold.settle(150)).join().unwrap();
    /// assert_eq!(limiter.peek(&1).remaining(), 850);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn hold_owned(self) -> Result<Hold<'static>, Denied> {
        let (granted, receipt) = self.held()?;
        Ok(Hold::new(LedgerOf::Owned(self.bucket.owned_ledger()), receipt, granted))
    }
}

#[expect(private_bounds, reason = "sealed")]
impl<'a, B: Owned<'a, Rule = Quota>> Ask<'_, B> {
    /// Reserves the tokens as [`reserve`](Self::reserve) does. The reservation owns a handle of the
    /// limiter.
    ///
    /// It is for the buckets of [`hold_owned`](Self::hold_owned), at the same cost. Dropped without
    /// a commit it gives its tokens back as any [`Reservation`](crate::Reservation) does.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let quota = Quota::per_second(10).burst(1);
    /// let limiter = RateLimiter::<u64>::builder(quota).clock(clock).build();
    /// assert_eq!(limiter.key(&1).reserve_owned()?.commit().tokens(), 1);
    /// let second = limiter.key(&1).reserve_owned()?;
    /// let waits = std::thread::spawn(move || second.delay());
    /// assert_eq!(waits.join().unwrap(), Duration::from_millis(100));
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn reserve_owned(self) -> Result<Reservation<'static>, Denied> {
        let (granted, receipt) = self.reserved()?;
        Ok(Reservation::new(LedgerOf::Owned(self.bucket.owned_ledger()), receipt, granted))
    }
}
