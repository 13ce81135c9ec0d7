//! A check by one script, and a count by another one if it was granted: the calls of limitador 0.14
//! for each decision.
//!
//! limitador itself is not here: with the feature `redis_storage` alone it does not compile, as its
//! module of binary keys belongs to the feature `disk_storage`, which is RocksDB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::limit::{Failure, Limit, Setup};

const CHECK: &str = "
return { redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]) }";

const COUNT: &str = "
local count = redis.call('incrby', KEYS[1], ARGV[2])
if count == tonumber(ARGV[2]) then
  redis.call('expire', KEYS[1], ARGV[1], 'NX')
  redis.call('sadd', KEYS[2], KEYS[1])
end
return count";

pub(super) struct CheckThenCount {
    connection: MultiplexedConnection,
    name: String,
    limit: u64,
    seconds: u64,
    check: Script,
    count: Script,
    calls: AtomicU64,
}

impl CheckThenCount {
    pub(super) async fn new(setup: &Setup) -> Result<CheckThenCount, Failure> {
        Ok(CheckThenCount {
            connection: setup.redis().await?,
            name: setup.name.clone(),
            limit: setup.quota.tokens(),
            seconds: setup.quota.period().as_secs().max(1),
            check: Script::new(CHECK),
            count: Script::new(COUNT),
            calls: AtomicU64::new(0),
        })
    }

    async fn try_ask(&self, key: &str) -> Result<bool, redis::RedisError> {
        let (name, mut connection) = (&self.name, self.connection.clone());
        // Its keys are JSON of the limit and of the values of the request.
        let limit = format!("\"namespace\":\"{name}\",\"seconds\":{},\"variables\":[\"key\"]", self.seconds);
        let counter = format!("namespace:{{{name}}},counter:{{{limit},\"set\":{{\"key\":\"{key}\"}}}}");
        self.calls.fetch_add(1, Relaxed);
        let values: Vec<Option<u64>> = self.check.key(&counter).invoke_async(&mut connection).await?;
        if values.first().copied().flatten().unwrap_or(0) >= self.limit {
            return Ok(false);
        }
        self.calls.fetch_add(1, Relaxed);
        let mut count = self.count.key(&counter);
        let count = count.key(format!("namespace:{{{name}}},counters_of_limit:{{{limit}}}"));
        let _: u64 = count.arg(self.seconds).arg(1).invoke_async(&mut connection).await?;
        Ok(true)
    }
}

impl Limit for CheckThenCount {
    async fn ask(&self, key: &str) -> bool {
        self.try_ask(key).await.unwrap_or(false)
    }

    fn calls(&self) -> [u64; 2] {
        [self.calls.load(Relaxed); 2]
    }
}
