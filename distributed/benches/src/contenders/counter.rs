//! The floor: `INCR`, and `PEXPIRE` after the first one. A fixed window from its first use.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::limit::{Failure, Limit, Setup};

pub(super) struct Counter {
    connection: MultiplexedConnection,
    name: String,
    limit: u64,
    window_ms: i64,
    calls: AtomicU64,
}

impl Counter {
    pub(super) async fn new(setup: &Setup) -> Result<Counter, Failure> {
        Ok(Counter {
            connection: setup.redis().await?,
            name: setup.name.clone(),
            limit: setup.quota.tokens(),
            window_ms: setup.quota.period().as_millis() as i64,
            calls: AtomicU64::new(0),
        })
    }

    async fn try_ask(&self, key: &str) -> Result<bool, redis::RedisError> {
        let (key, mut connection) = (format!("{}{key}", self.name), self.connection.clone());
        self.calls.fetch_add(1, Relaxed);
        let count: u64 = connection.incr(&key, 1).await?;
        if count == 1 {
            self.calls.fetch_add(1, Relaxed);
            let _: bool = connection.pexpire(&key, self.window_ms).await?;
        }
        Ok(count <= self.limit)
    }
}

impl Limit for Counter {
    async fn ask(&self, key: &str) -> bool {
        self.try_ask(key).await.unwrap_or(false)
    }

    fn calls(&self) -> [u64; 2] {
        [self.calls.load(Relaxed); 2]
    }
}
