//! Places in line that own their limiter, for the layer of tower.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::limiter::all_of::{Internal, Limit};
use crate::limiter::key_call::CallOptions;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;

/// Tokens that are earned after a delay, as in a [`Reservation`](crate::Reservation).
///
/// A dropped place gives its tokens back as a dropped reservation does.
pub(crate) struct Place {
    delay: Duration,
    cancel: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Place {
    fn new(receipt: Receipt, cancel: impl FnOnce(&Receipt) + Send + Sync + 'static) -> Place {
        Place { delay: receipt.delay, cancel: Some(Box::new(move || cancel(&receipt))) }
    }

    /// Returns a place whose tokens are there now.
    pub(crate) fn now(cancel: impl FnOnce() + Send + Sync + 'static) -> Place {
        Place { delay: Duration::ZERO, cancel: Some(Box::new(cancel)) }
    }

    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// Uses the tokens.
    pub(crate) fn commit(mut self) {
        self.cancel = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("delay", &self.delay).finish_non_exhaustive()
    }
}

impl<K, S> RateLimiter<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Reserves `n` tokens of a key that come within `max_wait` nanoseconds.
    pub(crate) fn place(
        &self,
        key: &K,
        plan: Option<&Plan>,
        n: u64,
        max_wait: u64,
    ) -> Result<(Granted, Place), Denied> {
        let options = CallOptions { plan, now: None };
        let (granted, receipt) = self.inner.reserve_by_receipt(key, options, n, max_wait)?;
        let limiter = self.clone();
        let cancel = move |receipt: &Receipt| {
            limiter.inner.keyspace.settle(receipt, Settle::Cancel(receipt));
        };
        Ok((granted, Place::new(receipt, cancel)))
    }

    /// Takes `n` tokens of a key now, for a limiter without a debt.
    pub(crate) fn place_now(&self, key: &K, plan: Option<&Plan>, n: u64) -> Result<(Granted, Place), Denied> {
        let options = CallOptions { plan, now: None };
        let limit = KeyLimit { inner: &self.inner, key, n, options };
        let (granted, receipt) = Limit::take(&limit, Internal)?;
        let (limiter, key) = (self.clone(), key.clone());
        let undo = move |receipt: &Receipt| {
            // The plan is in the receipt.
            Limit::undo(&limiter.key(&key), receipt);
        };
        Ok((granted, Place::new(receipt, undo)))
    }

    /// Reserves `n` tokens of the bucket without a key.
    pub(crate) fn place_without_key(&self, n: u64, max_wait: u64) -> Result<(Granted, Place), Denied> {
        let (granted, receipt) = self.no_key(n).reserve(max_wait)?;
        let limiter = self.clone();
        let cancel = move |receipt: &Receipt| limiter.no_key(0).settle(Settle::Cancel(receipt));
        Ok((granted, Place::new(receipt, cancel)))
    }
}
