//! better-bucket: the time at which the bucket was empty, in one atomic word.

use std::hint::black_box;
use std::time::{Duration, Instant};

use better_bucket::{Bucket, BucketConfig, BucketCore};

use super::bucket::{bucket, narrow};
use crate::{Limiter, Setup};

fn config(setup: Setup) -> BucketConfig {
    let (quota, burst) = (setup.quota, narrow(setup.quota.capacity()));
    BucketConfig::new(burst, narrow(quota.tokens()), quota.period(), burst).expect("nothing of a quota is 0")
}

bucket! {
    /// A bucket on its default clock, the one of `std`.
    OnStd(Bucket), |setup| Bucket::from_config(config(setup)), |bucket| bucket.try_acquire(1)
}

/// Its core, which takes the time from its caller, on tollgate's clock.
pub(crate) struct OnQuanta {
    bucket: BucketCore,
    clock: quanta::Clock,
    start: quanta::Instant,
}

impl Limiter<()> for OnQuanta {
    fn new(setup: Setup) -> Self {
        let clock = quanta::Clock::new();
        let start = clock.now();
        OnQuanta { bucket: BucketCore::new(config(setup), Duration::ZERO), clock, start }
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.bucket.try_acquire_at(1, self.clock.now() - self.start)
    }
}

/// A bucket with a reading at hand: one for a batch of decisions.
pub(crate) struct WithReading(Bucket);

impl Limiter<()> for WithReading {
    fn new(setup: Setup) -> Self {
        WithReading(Bucket::from_config(config(setup)))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.try_acquire_at(1, Instant::now().into())
    }

    fn count_granted(&self, keys: &[()]) -> u64 {
        let now = Instant::now().into();
        keys.iter().map(|()| u64::from(black_box(&self.0).try_acquire_at(1, now))).sum()
    }
}
