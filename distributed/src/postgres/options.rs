//! Options of the store of PostgreSQL.

use std::time::Duration;

/// Options of a [`PostgresStore`](crate::PostgresStore).
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The connections; 0 counts as 1. Calls take turns, and are pipelined on each connection. The
    /// default is 2.
    pub connections: usize,
    /// The longest time to connect. The default is 2 s.
    pub connect_timeout: Duration,
    /// The longest time of a statement, in whole milliseconds, after which the server ends it. The
    /// store gives the connection up if there is no answer 500 ms later. The default is 1 s.
    pub statement_timeout: Duration,
    /// The longest wait of a statement for a lock, in whole milliseconds. The default is 500 ms.
    pub lock_timeout: Duration,
    /// Whether a call waits until its effect is on disk. By default it does not: a crash of the
    /// server loses the calls of about the last three `wal_writer_delay`.
    pub synchronous_commit: bool,
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
            unlogged: false,
        }
    }
}

impl PostgresOptions {
    /// Returns the settings of a transaction, before its statements. READ COMMITTED is for a role
    /// at SERIALIZABLE, whose calls would conflict.
    pub(super) fn settings(&self) -> String {
        let statement = self.statement_timeout.as_millis().max(1);
        let lock = self.lock_timeout.as_millis().max(1);
        let commit = if self.synchronous_commit { "on" } else { "off" };
        format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {statement};
             SET LOCAL lock_timeout = {lock}; SET LOCAL synchronous_commit = {commit}; "
        )
    }
}
