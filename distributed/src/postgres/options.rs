//! Options of the store of PostgreSQL.

use std::time::Duration;

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
    /// Whether a pooler such as PgBouncer assigns a connection to each transaction. The store then
    /// neither prepares statements nor sets the session up, and the server plans each call. Set the
    /// timeouts and `synchronous_commit` for the role instead. The default is `false`.
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
    /// Returns the statements that set a session up.
    ///
    /// They make the server find each row by its key, whatever its statistics are, and plan once:
    /// planning takes longer than the statement.
    pub(super) fn settings(&self) -> String {
        let statement = self.statement_timeout.as_millis().max(1);
        let lock = self.lock_timeout.as_millis().max(1);
        let commit = if self.synchronous_commit { "on" } else { "off" };
        format!(
            "SET statement_timeout = {statement}; SET lock_timeout = {lock};
             SET synchronous_commit = {commit};
             SET default_transaction_isolation = 'read committed'; SET plan_cache_mode = force_generic_plan;
             SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off"
        )
    }
}
