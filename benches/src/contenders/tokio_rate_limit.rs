//! tokio-rate-limit: a bucket of three atomics for each string, in 256 shards of a concurrent map.

use tokio_rate_limit::RateLimiter;
use tokio_rate_limit::algorithm::TokenBucket;

use super::bucket::a_second;
use crate::{Limiter, Setup};

/// The limiter in its default form, which forgets no key.
impl Limiter<String> for RateLimiter {
    fn new(setup: Setup) -> Self {
        RateLimiter::from_algorithm(TokenBucket::new(setup.quota.capacity(), a_second(setup.quota)))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &String) -> bool {
        self.check(key).permitted
    }
}
