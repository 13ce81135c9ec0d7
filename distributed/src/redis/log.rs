//! A sliding log, for limits that must be exact in every window.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::errors::Failure;
use super::script::{LOG, ScriptCall};
use super::server::Server;
use super::store::RedisStore;
use crate::credits::spec::MAX_CREDITS;
use crate::store::error::{StoreError, StoreErrorKind};

/// The largest limit of a [`SlidingLog`].
const MAX_LIMIT: u64 = 10_000;

/// A limit on the calls of a key in every window, exact: the server keeps the time of each granted
/// call.
///
/// A key takes some 94 bytes for each granted call within the window, where a bucket takes 88 bytes
/// in all. So the limit is at most 10,000, and [`RedisStore`] is better for a limit that may refill
/// evenly. A step back of the server's clock delays later calls by that step.
///
/// ```no_run
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate_distributed::{RedisStore, SlidingLog};
///
/// let store = RedisStore::connect("redis://localhost").await?;
/// let log = SlidingLog::new(&store, 5, Duration::from_secs(60))?;
/// let answer = log.try_acquire("customer 17").await?;
/// if !answer.granted {
///     println!("again in {:?}", answer.retry_after);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SlidingLog {
    server: Arc<Server>,
    prefix: Arc<[u8]>,
    limit: u64,
    window_us: u64,
}

/// The answer of a [`SlidingLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogAnswer {
    /// Whether the call was granted.
    pub granted: bool,
    /// The calls that would be granted now, after this one.
    pub remaining: u64,
    /// The time until a refused call would be granted; zero after a grant.
    pub retry_after: Duration,
}

/// A limit or a window of a [`SlidingLog`] that is out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidLog {
    limit: u64,
    window: Duration,
}

impl fmt::Display for InvalidLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if (1..=MAX_LIMIT).contains(&self.limit) {
            return write!(f, "a window of {:?} is not between a microsecond and 100 years", self.window);
        }
        write!(f, "a log of {} calls is not between 1 and {MAX_LIMIT}", self.limit)
    }
}

impl Error for InvalidLog {}

impl SlidingLog {
    /// Returns a log on the server of a store. A key is stored behind the prefix of the store and
    /// `:log:`. No limiter has these keys: a name is not empty, and has no `:`.
    ///
    /// Logs with another limit or window share the keys.
    ///
    /// # Errors
    ///
    /// [`InvalidLog`] if the limit is 0 or over 10,000, or the window is under a microsecond or
    /// over 100 years.
    pub fn new(store: &RedisStore, limit: u64, window: Duration) -> Result<SlidingLog, InvalidLog> {
        let century_us = 100 * 366 * 86_400 * 1_000_000;
        let window_us = u64::try_from(window.as_micros()).ok().filter(|us| (1..=century_us).contains(us));
        let (Some(window_us), 1..=MAX_LIMIT) = (window_us, limit) else {
            return Err(InvalidLog { limit, window });
        };
        let prefix = [store.prefix(), b":log:"].concat().into();
        Ok(SlidingLog { server: Arc::clone(store.server()), prefix, limit, window_us })
    }

    /// Counts one call of a key, if the limit allows it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] tells whether the call may have been counted.
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<LogAnswer, StoreError> {
        let key = [&self.prefix, key.as_ref()].concat();
        let mut command = LOG.command(1);
        command.arg(&key).arg(self.limit).arg(self.window_us);
        let answer = self.server.run(&key, ScriptCall { script: &LOG, command, length: 3 }).await;
        let ended = |ended| Err(Failure::sent(io::Error::other(ended).into()));
        let numbers = answer.unwrap_or_else(ended)?;
        self.read(&numbers).ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Unknown,
                format!("the answer {numbers:?} is not that of the script"),
            )
        })
    }

    fn read(&self, numbers: &[i64]) -> Option<LogAnswer> {
        let &[granted @ 0..=1, remaining, retry_us] = numbers else {
            return None;
        };
        let remaining = u64::try_from(remaining).ok().filter(|&remaining| remaining < self.limit)?;
        let retry_us = u64::try_from(retry_us).ok().filter(|&retry| retry <= MAX_CREDITS)?;
        Some(LogAnswer { granted: granted == 1, remaining, retry_after: Duration::from_micros(retry_us) })
    }
}

impl fmt::Debug for SlidingLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = Duration::from_micros(self.window_us);
        f.debug_struct("SlidingLog")
            .field("limit", &self.limit)
            .field("window", &window)
            .finish_non_exhaustive()
    }
}
