//! A bucket that the client reads, computes, and sets if it is unchanged, as bucket4j does it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use tollgate::Quota;

use crate::limit::{Failure, Limit, Setup};

const SET: &str = "
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1";

pub(super) struct CompareAndSet {
    connection: MultiplexedConnection,
    name: String,
    quota: Quota,
    set: Script,
    calls: AtomicU64,
}

impl CompareAndSet {
    pub(super) async fn new(setup: &Setup) -> Result<CompareAndSet, Failure> {
        Ok(CompareAndSet {
            connection: setup.redis().await?,
            name: setup.name.clone(),
            quota: setup.quota,
            set: Script::new(SET),
            calls: AtomicU64::new(0),
        })
    }

    /// Returns the tokens and their time after a grant; `None` is a refusal.
    fn next(&self, state: &str, now: f64) -> Option<String> {
        let burst = self.quota.capacity() as f64;
        let rate = self.quota.tokens() as f64 / self.quota.period().as_secs_f64();
        let stored =
            state.split_once(' ').and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
        let (level, last): (f64, f64) = stored.unwrap_or((burst, now));
        let level = (level + (now - last).max(0.0) * rate).min(burst);
        (level >= 1.0).then(|| format!("{} {now}", level - 1.0))
    }

    /// Tries until no other client came between. There is no bound on the tries.
    async fn try_ask(&self, key: &str) -> Result<bool, redis::RedisError> {
        let (key, mut connection) = (format!("{}{key}", self.name), self.connection.clone());
        let life = self.quota.period().as_millis().max(1_000) as u64;
        loop {
            self.calls.fetch_add(1, Relaxed);
            let state: Option<String> = connection.get(&key).await?;
            let state = state.unwrap_or_default();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let Some(next) = self.next(&state, now) else { return Ok(false) };
            self.calls.fetch_add(1, Relaxed);
            let mut call = self.set.prepare_invoke();
            if call.key(&key).arg(&state).arg(&next).arg(life).invoke_async(&mut connection).await? {
                return Ok(true);
            }
        }
    }
}

impl Limit for CompareAndSet {
    async fn ask(&self, key: &str) -> bool {
        self.try_ask(key).await.unwrap_or(false)
    }

    fn calls(&self) -> [u64; 2] {
        [self.calls.load(Relaxed); 2]
    }
}
