//! The sliding log of tollgate: a sorted set with the time of each grant.

use std::time::Duration;

use tollgate_distributed::{DistributedLimiter, RedisStore, SlidingLog};

use crate::limit::{Failure, Limit, Setup};

/// The longest log. A larger limit is one of a shorter window.
const MOST: u64 = 10_000;

pub(super) struct Log(DistributedLimiter<String, SlidingLog>);

impl Log {
    pub(super) async fn new(setup: &Setup) -> Result<Log, Failure> {
        let (tokens, period) = (setup.quota.tokens(), setup.quota.period());
        let limit = tokens.min(MOST);
        let window = period.mul_f64(limit as f64 / tokens as f64);
        let builder = SlidingLog::builder(&RedisStore::connect(&setup.url).await?, limit, window)?;
        // A loaded machine is no outage.
        Ok(Log(builder.name(&setup.name).deadline(Duration::from_secs(10)).build()?))
    }
}

impl Limit for Log {
    async fn ask(&self, key: &str) -> bool {
        self.0.ask(key).await.is_ok()
    }

    fn calls(&self) -> [u64; 2] {
        let stats = self.0.stats();
        [stats.calls_answered + stats.calls_late, stats.ops]
    }
}
