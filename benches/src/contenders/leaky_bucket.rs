//! leaky-bucket: tokens in an atomic word, refilled under a mutex at intervals.

use std::time::Duration;

use leaky_bucket::RateLimiter;

use crate::{Limiter, Setup};

impl Limiter<()> for RateLimiter {
    fn new(setup: Setup) -> Self {
        let (quota, burst) = (setup.quota, whole(setup.quota.capacity()));
        // The shortest interval of whole milliseconds with whole tokens: earned tokens come
        // promptly.
        let period = u64::try_from(quota.period().as_millis()).expect("a period of some years at most");
        let refills = gcd(quota.tokens(), period);
        RateLimiter::builder()
            .refill(whole(quota.tokens() / refills))
            .interval(Duration::from_millis(period / refills))
            .max(burst)
            .initial(burst)
            // Its default. The other has a fast path that stores a stale balance where it fails
            // (`State::drop`): two threads stop it for good, and after a pause it grants two
            // bursts.
            .fair(true)
            .build()
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.try_acquire(1)
    }
}

fn whole(tokens: u64) -> usize {
    usize::try_from(tokens).expect("a word of 64 bits")
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
