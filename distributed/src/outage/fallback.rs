//! The bucket of a key while the store does not answer.

use tollgate::{Clock, Denied, Granted, Quota, TokenBucket};

/// The bucket of a key with a share of the quota, while the store does not answer for it.
pub(crate) struct Fallback {
    bucket: TokenBucket,
}

impl Fallback {
    /// Returns a bucket with that share of the quota, at least one token of burst. It begins with
    /// the share of `known`, the tokens last known to be in the store; `None` is a full bucket.
    pub(crate) fn new(quota: Quota, share: f64, known: Option<u64>, clock: Clock) -> Fallback {
        let part = |tokens: u64| (tokens as f64 * share) as u64;
        let burst = part(quota.capacity()).max(1);
        let period = quota.period().mul_f64(1.0 / share);
        let share_of = Quota::try_per(quota.tokens(), period, burst).unwrap_or(quota);
        let bucket = TokenBucket::builder(share_of).clock(clock).build();
        let level = known.map_or(burst, part).min(burst);
        let _ = bucket.acquire_up_to(burst - level);
        Fallback { bucket }
    }

    pub(crate) fn take(&self, n: u64) -> Result<Granted, Denied> {
        self.bucket.try_acquire_n(n)
    }
}
