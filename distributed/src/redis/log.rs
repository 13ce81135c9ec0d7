//! A sliding log, for limits that must be exact in every window.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::errors::Failure;
use super::script::{Call, LOG};
use super::server::Server;
use super::store::RedisStore;
use crate::credits::spec::MAX_CREDITS;
use crate::store::error::{StoreError, StoreErrorKind};

/// The largest limit of a [`SlidingLog`].
const MAX_LIMIT: u64 = 10_000;

/// At most `limit` calls in each window of a length, exactly: the server keeps the time of each
/// granted call.
///
/// A key takes some 94 bytes for each call of its limit, where a bucket takes 88 bytes in all. A
/// limit over 10,000 is refused. For others, [`RedisStore`] is the better choice. A server's clock
/// that steps back delays the calls by its step.
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
    /// The calls that would be granted now.
    pub remaining: u64,
    /// The time until a refused call would be granted; zero after a grant.
    pub retry_after: Duration,
}

/// A limit or a window that a [`SlidingLog`] cannot have.
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
    /// Returns a log on the server of a store. Its keys are those of the store behind `log:`.
    ///
    /// A later log with another limit or window has the same keys.
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
        let prefix = [store.prefix(), b"log:"].concat().into();
        Ok(SlidingLog { server: Arc::clone(store.server()), prefix, limit, window_us })
    }

    /// Asks for one call.
    ///
    /// # Errors
    ///
    /// [`StoreError`] tells whether the call may have been counted.
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<LogAnswer, StoreError> {
        let key = [&self.prefix, key.as_ref()].concat();
        let mut command = LOG.command(1);
        command.arg(&key).arg(self.limit).arg(self.window_us);
        let answer = self.server.run(&key, Call { script: &LOG, command, length: 3 }).await;
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
