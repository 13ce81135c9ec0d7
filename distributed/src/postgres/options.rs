//! Options of the store of PostgreSQL.

use std::time::Duration;

/// Options of a [`PostgresStore`](crate::PostgresStore).
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The connections: at least 1. Each has one statement after another, and takes further ones in
    /// the meantime. The default is 2.
    pub connections: usize,
    /// How long a connection may take to be made and set up. The default is 2 s.
    pub connect_timeout: Duration,
    /// How long a statement may take: the server ends it then. The default is 1 s.
    pub statement_timeout: Duration,
    /// How long a statement may wait for one lock. The default is 500 ms.
    pub lock_timeout: Duration,
    /// Whether a call waits until its effect is on disk. By default it does not: a crash of the
    /// server loses the calls of the last moments, some three times `wal_writer_delay`.
    pub synchronous_commit: bool,
    /// Whether a pooler such as PgBouncer may give each transaction to another connection. The
    /// store then neither prepares statements nor sets a session up, and each call is planned anew.
    /// The timeouts and `synchronous_commit` should be set for the role.
    pub pooler: bool,
    /// Whether [`migrate`](crate::PostgresStore::migrate) makes the table unlogged: updates cost
    /// half, and a crash of the server or a replica that takes over makes all buckets full.
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
    /// Returns the settings of a session.
    ///
    /// Each row of a statement is found by its key, whatever the statistics of the table say, and
    /// the plan is made once: planning takes longer than the statement.
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
