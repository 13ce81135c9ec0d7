//! The tokens of a lease of a bucket: a `TokenBucket` on the clock of the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Clock, Denied, Granted, Moment, TokenBucket};

use super::lease_time::LeaseTime;
use super::terms::{BucketTerms, Terms};

/// The tokens of one key that one process holds.
///
/// The store had some of them, and granted the others on credit. These mature at the rate of the
/// quota, in intervals that no two leases share. So all processes together never have more than the
/// one bucket.
pub(crate) struct MaturingTokens {
    time: Arc<LeaseTime>,
    bucket: TokenBucket,
    /// The tokens on credit so far, matured or not. The end of the clock is the time that earns
    /// them.
    matures: AtomicU64,
}

impl MaturingTokens {
    pub(crate) fn new(terms: &BucketTerms, clock: Clock, origin: Moment) -> MaturingTokens {
        let time = Arc::new(LeaseTime::new(clock, origin));
        let reads = time.clone();
        let bucket = TokenBucket::builder(terms.lease).clock(Clock::from_fn(move || reads.read())).build();
        // The bucket begins at time 0, with no token.
        let _ = bucket.ask().n(u64::MAX).acquire_up_to();
        MaturingTokens { time, bucket, matures: AtomicU64::new(0) }
    }

    /// Returns the real time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.time.real()
    }

    /// Takes tokens that have matured.
    #[inline]
    pub(crate) fn take(&self, n: u64) -> Result<Granted, Denied> {
        self.bucket.try_acquire_n(n)
    }

    /// Takes the tokens that have matured, up to `n`, and returns their number.
    pub(crate) fn take_up_to(&self, n: u64) -> u64 {
        self.bucket.ask().n(n).acquire_up_to().tokens()
    }

    /// Adds tokens that are valid at once.
    pub(crate) fn put(&self, n: u64) {
        if n > 0 {
            self.bucket.refund(n);
        }
    }

    /// Adds tokens that mature one after another, the last at the real time `full`. The caller sees
    /// to it that no two calls overlap.
    pub(crate) fn put_later(&self, terms: &Terms, n: u64, full: u64) {
        if n > 0 {
            let all = self.matures.load(Ordering::Relaxed).saturating_add(n);
            self.matures.store(all, Ordering::Relaxed);
            self.time.extend(full.saturating_sub(terms.time_of(n)), terms.time_of(all));
        }
    }

    /// Returns the tokens that have matured.
    pub(crate) fn matured(&self) -> u64 {
        self.bucket.peek().remaining()
    }

    /// Returns the tokens that are held, matured or not.
    ///
    /// If there is a gap between two grants on credit, this may be too high by the tokens of that
    /// gap.
    pub(crate) fn held(&self, terms: &Terms) -> u64 {
        let rest = self.time.rest().as_nanos() as u64;
        self.matured() + terms.tokens_in(rest)
    }
}
