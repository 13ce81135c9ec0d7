//! Options of the store of PostgreSQL.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::fault;
use crate::store::error::{StoreError, StoreErrorKind};

/// A setting of a connection that has its start-up options, so that it belongs to the store.
pub(super) const OWN: &str = "tollgate.own";

/// Options of a [`PostgresStore`](crate::PostgresStore).
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The connections; 0 counts as 1. Calls take turns, and are pipelined on each connection. The
    /// default is 2.
    pub connections: usize,
    /// The longest time to connect and to set the session up. The default is 2 s.
    pub connect_timeout: Duration,
    /// The longest time of a statement, in whole milliseconds, after which the server ends it. The
    /// store gives the connection up if there is no answer 500 ms later. The default is 1 s.
    pub statement_timeout: Duration,
    /// The longest wait of a statement for a lock, in whole milliseconds. The default is 500 ms.
    pub lock_timeout: Duration,
    /// Whether a call waits until its effect is on disk. By default it does not: a crash of the
    /// server loses the calls of about the last three `wal_writer_delay`.
    pub synchronous_commit: bool,
    /// Whether a pooler such as PgBouncer gives a connection to another client after each
    /// transaction; `pooler=true` in the URL. The store then prepares nothing, and its settings are
    /// those of a transaction: the server plans each call, and a connection has one call at a time.
    /// The default is `false`: the settings are start-up options of the connection, and a pooler
    /// that refuses or drops them is a permanent error.
    pub pooler: bool,
    /// Whether [`migrate`](crate::PostgresStore::migrate) makes the table unlogged. Updates cost
    /// half, and all buckets are full after a crash of the server or a failover. The default is
    /// `false`.
    pub unlogged: bool,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            connections: 2,
            connect_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(1),
            lock_timeout: Duration::from_millis(500),
            synchronous_commit: false,
            pooler: false,
            unlogged: false,
        }
    }
}

impl PostgresOptions {
    /// Returns the start-up options of a connection.
    pub(super) fn start_up(&self) -> String {
        let settings = self.settings().map(|(name, value)| format!(" -c {name}={value}")).concat();
        format!("-c {OWN}=on -c default_transaction_isolation=read\\ committed{settings}")
    }

    /// Returns the statements that begin a transaction on a connection without start-up options.
    pub(super) fn begin(&self) -> String {
        let settings = self.settings().map(|(name, value)| format!("; SET LOCAL {name} = {value}")).concat();
        format!("BEGIN ISOLATION LEVEL READ COMMITTED{settings}")
    }

    /// Returns the settings.
    ///
    /// They make the server find each row by its key, whatever its statistics are, and plan once:
    /// planning takes longer than the statement.
    fn settings(&self) -> [(&'static str, String); 8] {
        let commit = if self.synchronous_commit { "on" } else { "off" };
        [
            ("statement_timeout", self.statement_timeout.as_millis().max(1).to_string()),
            ("lock_timeout", self.lock_timeout.as_millis().max(1).to_string()),
            ("synchronous_commit", commit.to_owned()),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("enable_seqscan", "off".to_owned()),
            ("enable_hashjoin", "off".to_owned()),
            ("enable_mergejoin", "off".to_owned()),
            ("jit", "off".to_owned()),
        ]
    }
}

/// Reads a URL: the parameter `pooler` is an option of the store, the others are of the client.
///
/// # Errors
///
/// A permanent error if the URL is wrong, or if it asks for TLS.
pub(super) fn read(url: &str) -> Result<(Config, PostgresOptions), StoreError> {
    let wrong = |why: String| StoreError::new(StoreErrorKind::Permanent, why);
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (mine, others): (Vec<_>, Vec<_>) = query.split('&').partition(|part| part.starts_with("pooler="));
    let (pooler, url) = match mine.as_slice() {
        [] => (false, url.to_owned()),
        [one @ ("pooler=true" | "pooler=false")] => {
            (one.ends_with("true"), format!("{address}?{}", others.join("&")))
        }
        _ => return Err(wrong(format!("{:?} is not pooler=true or pooler=false", mine.join("&")))),
    };
    let config: Config = url.parse().map_err(|error| wrong(fault::text(&error)))?;
    if config.get_ssl_mode() == SslMode::Require {
        let why = "sslmode=require needs TLS: PostgresStore::connect_with takes it, a URL alone does not";
        return Err(wrong(why.to_owned()));
    }
    Ok((config, PostgresOptions { pooler, ..PostgresOptions::default() }))
}
