//! The settings of a store on Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;

use super::connection::Connection;
use super::errors::Failure;
use super::limits::Limits;
use super::link::Link;
use super::server::Server;
use super::store::RedisStore;
use crate::store::error::StoreError;

/// The settings of a [`RedisStore`].
///
/// ```no_run
/// # async fn example() -> Result<(), tollgate_distributed::StoreError> {
/// use std::time::Duration;
/// use tollgate_distributed::RedisStore;
///
/// let store = RedisStore::builder()
///     .prefix("shop:limits:")
///     .cold_start_guard(true)
///     .connect_timeout(Duration::from_millis(200))
///     .connect("redis://localhost")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisStoreBuilder {
    prefix: Vec<u8>,
    guard: bool,
    limits: Limits,
}

impl Default for RedisStoreBuilder {
    fn default() -> RedisStoreBuilder {
        let limits = Limits { connect: Duration::from_millis(500), response: Duration::from_millis(500) };
        RedisStoreBuilder { prefix: b"tollgate:".to_vec(), guard: false, limits }
    }
}

impl RedisStoreBuilder {
    /// Sets the bytes before each key, `tollgate:` by default. Braces in it and in the keys are
    /// those of a cluster's hash tags.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> RedisStoreBuilder {
        self.prefix = prefix.into();
        self
    }

    /// Sets whether a bucket that the server does not know starts full, which is the default, or as
    /// if it had been empty when the server started.
    ///
    /// A server that starts without its data knows no bucket. With the guard, the tokens of all its
    /// lives are at most a burst and the rate; without it, each start adds a burst. The time of the
    /// start is known to a second, and the guard takes the later end. A new key has its full burst
    /// once the server has run for the time in which a bucket fills. A server that restarts with
    /// its data, and a replica that starts, grant less for that time as well.
    ///
    /// The guard costs the server some 5 µs for each call on a bucket that it does not know. The
    /// user of the connection needs the permission of `INFO`.
    pub fn cold_start_guard(mut self, guard: bool) -> RedisStoreBuilder {
        self.guard = guard;
        self
    }

    /// Sets the longest time in which a server is connected, half a second by default.
    pub fn connect_timeout(mut self, limit: Duration) -> RedisStoreBuilder {
        self.limits.connect = limit;
        self
    }

    /// Sets the longest time in which a server answers, half a second by default. After a longer
    /// silence the connection is made anew.
    pub fn response_timeout(mut self, limit: Duration) -> RedisStoreBuilder {
        self.limits.response = limit;
        self
    }

    /// Connects to a server or a cluster. The addresses are those of [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Permanent`](crate::StoreErrorKind::Permanent) if the address or the
    /// password is wrong, and [`StoreErrorKind::Refused`](crate::StoreErrorKind::Refused) if no
    /// server answers.
    pub async fn connect(self, url: &str) -> Result<RedisStore, StoreError> {
        let store = self.lazy(url)?;
        store.server().connect().await?;
        Ok(store)
    }

    /// Returns a store that connects when it is first called, and so starts without its server. The
    /// addresses are those of [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Permanent`](crate::StoreErrorKind::Permanent) if the address is none.
    pub fn lazy(self, url: &str) -> Result<RedisStore, StoreError> {
        let server = Server::open(url, self.limits).map_err(Failure::not_sent)?;
        Ok(RedisStore::new(Arc::new(server), self.prefix, self.guard))
    }

    /// Returns a store on a connection of the caller's, as [`RedisStore::with_connection`] does.
    pub fn with_connection<C>(self, connection: C) -> RedisStore
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let link = Link::of(Connection::Foreign(Arc::new(connection)), self.limits);
        RedisStore::new(Arc::new(Server::of(link)), self.prefix, self.guard)
    }
}
