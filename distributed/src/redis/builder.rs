//! The settings of a store on Redis, and the constructors of the store.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;

use super::connection::Connection;
use super::errors::Failure;
use super::link::{Limits, Link};
use super::server::Server;
use super::store::RedisStore;
use super::tls_files::TlsFiles;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::url_options::UrlOptions;

/// The settings of a [`RedisStore`].
///
/// ```no_run
/// # async fn example() -> Result<(), tollgate_distributed::StoreError> {
/// use std::time::Duration;
/// use tollgate_distributed::RedisStore;
///
/// let store = RedisStore::builder()
///     .prefix("shop-limits:")
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
    tls: TlsFiles,
}

impl Default for RedisStoreBuilder {
    fn default() -> RedisStoreBuilder {
        let limits = Limits { connect: Duration::from_millis(500), response: Duration::from_millis(500) };
        RedisStoreBuilder { prefix: b"tollgate:".to_vec(), guard: false, limits, tls: TlsFiles::default() }
    }
}

impl RedisStore {
    /// Connects to a server, a cluster or a master, by [`RedisStoreBuilder::default`].
    ///
    /// The URL is one of:
    ///
    /// * `redis://user:password@host:port/database`, of which all but the host has a default.
    /// * `redis+cluster://user:password@host:port,host:port`, with some nodes of a cluster.
    /// * `redis+sentinel://user:password@host:port,host:port/master/database`, with the sentinels
    ///   of a master and its name. Each new connection asks all of them for the master, so a call
    ///   after a failover finds it. The user and the password are those of the master; the query
    ///   `?sentinel_user=..&sentinel_password=..` has those of the sentinels.
    ///
    /// `rediss`, `rediss+cluster` and `rediss+sentinel` are with TLS, by the feature `redis-tls`.
    /// [`AnyStore::open`](crate::AnyStore::open) takes certificates as options of the URL.
    ///
    /// # Errors
    ///
    /// As those of [`RedisStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<RedisStore, StoreError> {
        RedisStore::builder().connect(url).await
    }

    /// Returns the default settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::default()
    }
}

/// The options of a URL.
const OPTIONS: [&str; 8] = [
    "prefix",
    "cold_start_guard",
    "connect_timeout_ms",
    "response_timeout_ms",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_skip_hostname",
];

/// Returns a store at a URL with options, which connects at its first call.
pub(crate) fn open(url: &str) -> Result<RedisStore, StoreError> {
    let (url, options) = UrlOptions::split(url, &OPTIONS);
    let mut builder = RedisStore::builder();
    let mut prefix = String::from_utf8_lossy(&builder.prefix).into_owned();
    options.set("prefix", &mut prefix)?;
    options.set("cold_start_guard", &mut builder.guard)?;
    options.set_time("connect_timeout_ms", &mut builder.limits.connect)?;
    options.set_time("response_timeout_ms", &mut builder.limits.response)?;
    for (name, path) in [
        ("tls_ca", &mut builder.tls.ca),
        ("tls_cert", &mut builder.tls.cert),
        ("tls_key", &mut builder.tls.key),
    ] {
        options.set(name, path)?;
    }
    options.set("tls_skip_hostname", &mut builder.tls.skip_hostname)?;
    builder.prefix(prefix).lazy(&url)
}

impl RedisStoreBuilder {
    /// Sets the bytes before each key, `tollgate:` by default. They end with their only `:`, so two
    /// prefixes share no key. On a cluster, braces in the prefix or in a key make a hash tag.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> RedisStoreBuilder {
        self.prefix = prefix.into();
        self
    }

    /// Sets whether a missing bucket counts as one that was empty when the server started, and a
    /// missing count as one that was used up then. By default the bucket is full, and the count is
    /// empty.
    ///
    /// A server that restarts without its data has lost all of them. Without the guard each restart
    /// adds a burst to the tokens of a key; with it none does. The price: after any start of a
    /// server, also with its data or as a replica, new keys have less than their burst until the
    /// server has run for the time in which a bucket fills. A new key has no token of a window
    /// until the one that ran at the start is over, or for a period from the first use. The time of
    /// the start is known to a second, and the guard takes the later end.
    ///
    /// The guard costs the server some 5 µs for each script with a missing bucket. The account
    /// needs permission for `INFO`.
    pub fn cold_start_guard(mut self, guard: bool) -> RedisStoreBuilder {
        self.guard = guard;
        self
    }

    /// Sets the longest time to connect to a server, 500 ms by default.
    pub fn connect_timeout(mut self, limit: Duration) -> RedisStoreBuilder {
        self.limits.connect = limit;
        self
    }

    /// Sets the longest time to an answer of a server, 500 ms by default. After a longer silence
    /// the call has an unknown effect, and the store makes a new connection.
    pub fn response_timeout(mut self, limit: Duration) -> RedisStoreBuilder {
        self.limits.response = limit;
        self
    }

    /// Connects to a server, a cluster or a master at a URL as of [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Permanent`] if the URL, the prefix or the password is wrong, and
    /// [`StoreErrorKind::Refused`] if no server answers.
    pub async fn connect(self, url: &str) -> Result<RedisStore, StoreError> {
        let store = self.lazy(url)?;
        store.server().connect().await?;
        Ok(store)
    }

    /// Returns a store that connects at its first call, so that a program starts without the
    /// server. The URL is as of [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Permanent`] if the URL or the prefix is wrong.
    pub fn lazy(self, url: &str) -> Result<RedisStore, StoreError> {
        self.check()?;
        let server = Server::open(url, self.limits, &self.tls).map_err(Failure::not_sent)?;
        Ok(RedisStore::new(Arc::new(server), self.prefix, self.guard))
    }

    /// Returns a store on a connection of the caller, such as one with client certificates.
    ///
    /// The store never replaces it. A `MultiplexedConnection` does not reconnect, and a
    /// `ConnectionManager` does not after a failover behind one address. A `ClusterConnection` with
    /// retries may send a call again that had its effect, so its tokens are taken twice.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Permanent`] if the prefix is wrong.
    pub fn with_connection<C>(self, connection: C) -> Result<RedisStore, StoreError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check()?;
        let link = Link::of(Connection::Foreign(Arc::new(connection)), self.limits);
        Ok(RedisStore::new(Arc::new(Server::of(link)), self.prefix, self.guard))
    }

    fn check(&self) -> Result<(), StoreError> {
        if matches!(self.prefix.split_last(), Some((b':', rest)) if !rest.contains(&b':')) {
            return Ok(());
        }
        let why = format!("the prefix \"{}\" does not end with its only \":\"", self.prefix.escape_ascii());
        Err(StoreError::new(StoreErrorKind::Permanent, why))
    }
}
