//! The sliding log of tollgate: a sorted set with the time of each grant.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollgate_distributed::{RedisStore, SlidingLog};

use super::{Failure, Limit, Setup};

/// The longest log. A larger limit is one of a shorter window.
const MOST: u64 = 10_000;

pub(super) struct Log {
    log: SlidingLog,
    name: String,
    calls: AtomicU64,
}

impl Log {
    pub(super) async fn new(setup: &Setup) -> Result<Log, Failure> {
        let (tokens, period) = (setup.quota.tokens(), setup.quota.period());
        let limit = tokens.min(MOST);
        let window = period.mul_f64(limit as f64 / tokens as f64);
        let log = SlidingLog::new(&RedisStore::connect(&setup.url).await?, limit, window)?;
        Ok(Log { log, name: setup.name.clone(), calls: AtomicU64::new(0) })
    }
}

impl Limit for Log {
    async fn ask(&self, key: &str) -> bool {
        self.calls.fetch_add(1, Relaxed);
        let answer = self.log.try_acquire(format!("{}{key}", self.name)).await;
        answer.is_ok_and(|answer| answer.granted)
    }

    fn calls(&self) -> [u64; 2] {
        [self.calls.load(Relaxed); 2]
    }
}
