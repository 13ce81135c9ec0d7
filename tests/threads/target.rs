//! The verbs that a single bucket and a key of a limiter both have.

use tollgate::{Denied, Granted, Hold, RateLimiter, Reservation, TokenBucket};

pub(super) trait Target {
    fn take(&self, n: u64) -> Result<Granted, Denied>;
    fn up_to(&self, n: u64) -> Granted;
    fn reserve(&self, n: u64) -> Result<Reservation<'_>, Denied>;
    fn hold(&self, n: u64) -> Result<Hold<'_>, Denied>;
    fn refund(&self, n: u64);
}

impl Target for TokenBucket {
    fn take(&self, n: u64) -> Result<Granted, Denied> {
        self.try_acquire_n(n)
    }

    fn up_to(&self, n: u64) -> Granted {
        self.acquire_up_to(n)
    }

    fn reserve(&self, n: u64) -> Result<Reservation<'_>, Denied> {
        self.reserve(n)
    }

    fn hold(&self, n: u64) -> Result<Hold<'_>, Denied> {
        self.hold(n)
    }

    fn refund(&self, n: u64) {
        self.refund(n);
    }
}

pub(super) struct Key<'a>(pub(super) &'a RateLimiter<u64>, pub(super) u64);

impl Target for Key<'_> {
    fn take(&self, n: u64) -> Result<Granted, Denied> {
        self.0.try_acquire_n(&self.1, n)
    }

    fn up_to(&self, n: u64) -> Granted {
        self.0.acquire_up_to(&self.1, n)
    }

    fn reserve(&self, n: u64) -> Result<Reservation<'_>, Denied> {
        self.0.reserve(&self.1, n)
    }

    fn hold(&self, n: u64) -> Result<Hold<'_>, Denied> {
        self.0.hold(&self.1, n)
    }

    fn refund(&self, n: u64) {
        self.0.refund(&self.1, n);
    }
}
