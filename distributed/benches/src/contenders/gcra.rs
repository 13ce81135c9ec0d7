//! The theoretical arrival time of a key, in whole microseconds, by a script.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::limit::{Failure, Limit, Setup};

/// `ARGV` is the time of a token and that of a burst. A refusal writes nothing.
const ASK: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1]
if arrival - now > tonumber(ARGV[2]) then return 0 end
local life = math.ceil((arrival - now) / 1000)
redis.call('SET', KEYS[1], string.format('%.0f', arrival), 'PX', string.format('%.0f', life))
return 1";

pub(super) struct Gcra {
    connection: MultiplexedConnection,
    name: String,
    token_us: u64,
    burst_us: u64,
    script: Script,
    calls: AtomicU64,
}

impl Gcra {
    pub(super) async fn new(setup: &Setup) -> Result<Gcra, Failure> {
        // The shortest time of a token is a microsecond.
        let token_us = (setup.quota.period().as_micros() as u64 / setup.quota.tokens()).max(1);
        Ok(Gcra {
            connection: setup.redis().await?,
            name: setup.name.clone(),
            token_us,
            burst_us: token_us * setup.quota.capacity(),
            script: Script::new(ASK),
            calls: AtomicU64::new(0),
        })
    }
}

impl Limit for Gcra {
    async fn ask(&self, key: &str) -> bool {
        self.calls.fetch_add(1, Relaxed);
        let mut call = self.script.prepare_invoke();
        let call = call.key(format!("{}{key}", self.name)).arg(self.token_us).arg(self.burst_us);
        call.invoke_async(&mut self.connection.clone()).await.unwrap_or(false)
    }

    fn calls(&self) -> [u64; 2] {
        [self.calls.load(Relaxed); 2]
    }
}
