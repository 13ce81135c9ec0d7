//! The store of PostgreSQL.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, Row, Socket};

use super::batch::{Arrays, answer};
use super::fault::of_connect;
use super::options::{self, PostgresOptions};
use super::session::PostgresSession;
use crate::sql::fault::Fault;
use crate::sql::sessions::{Connect, Sessions};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::{Op, Store};

const BUCKETS: &str = include_str!("../../migrations/postgres/buckets.sql");
const ACQUIRE: &str = include_str!("../../migrations/postgres/acquire.sql");
const UNLOGGED: &str = include_str!("../../migrations/postgres/unlogged.sql");

/// The end of a migration: it needs each column and each right of a call.
const USABLE: &str = "INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us)
        SELECT id, credits, last_us, unit, full_us FROM tollgate_buckets WHERE false;
    UPDATE tollgate_buckets SET credits = 0 WHERE false";

/// The start of a migration: one at a time, as two would both create the table, and on disk when it
/// returns.
const ALONE: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
    SET LOCAL synchronous_commit = on;
    SELECT pg_advisory_xact_lock(7310314510386716005)";

/// Buckets in a table of PostgreSQL.
///
/// A batch of calls is one statement and one round trip. The clock is the server's. A call that
/// changes nothing takes no lock and writes nothing. The exception is a call that lost a race for
/// the last tokens: it already holds the lock of the row, and writes the row as it was.
///
/// Connections are made when they are needed, and replaced when they have ended. A statement goes
/// on if its caller is dropped. The table must exist before the first call: see
/// [`migrate`](Self::migrate).
pub struct PostgresStore {
    sessions: Sessions<PostgresSession>,
    options: PostgresOptions,
}

impl PostgresStore {
    /// Returns a store at a URL such as `postgres://user:password@host/database`, with the default
    /// options and without TLS. It connects at its first call. The parameter `?pooler=true` is
    /// [`PostgresOptions::pooler`].
    ///
    /// # Errors
    ///
    /// A permanent error if the URL is wrong, or if it has `sslmode=require`.
    pub fn connect(url: &str) -> Result<PostgresStore, StoreError> {
        let (config, options) = options::read(url)?;
        Ok(PostgresStore::connect_with(config, NoTls, options))
    }

    /// Returns a store with options, and with TLS unless `tls` is `NoTls`. It connects at its first
    /// call.
    pub fn connect_with<T>(mut config: Config, tls: T, options: PostgresOptions) -> PostgresStore
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        if !options.pooler {
            config.options(format!("{} {}", config.get_options().unwrap_or_default(), options.start_up()));
        }
        let (patience, setting) = (options.connect_timeout, options.clone());
        let connect: Connect<PostgresSession> = Arc::new(move || {
            let (config, tls, options) = (config.clone(), tls.clone(), setting.clone());
            Box::pin(async move {
                let made = timeout(patience, make(config, tls, &options)).await;
                made.unwrap_or_else(|_| {
                    Err(Fault::new(StoreErrorKind::Refused, "the connection took too long"))
                })
            })
        });
        PostgresStore { sessions: Sessions::new(options.connections, connect), options }
    }

    /// Returns a store on a connection of the caller, with the option `pooler`: the store sets and
    /// prepares nothing on it. Another task must poll its
    /// [`Connection`](tokio_postgres::Connection). After the connection has ended, each call fails
    /// with a permanent error.
    #[must_use]
    pub fn with_client(client: Client) -> PostgresStore {
        let options = PostgresOptions { pooler: true, ..PostgresOptions::default() };
        let session = Mutex::new(Some(PostgresSession::shared(client, &options, false)));
        let connect: Connect<PostgresSession> = Arc::new(move || {
            let session = session.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ended = || Fault::new(StoreErrorKind::Permanent, "the connection of the store has ended");
            Box::pin(async move { session.ok_or_else(ended) })
        });
        PostgresStore { sessions: Sessions::new(1, connect), options }
    }

    /// Creates the table and the function if they are missing, which needs the right to create
    /// them. If they are there, it needs the rights of a call only.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server refuses, or if a call cannot use the table.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let unlogged = if self.options.unlogged { UNLOGGED } else { "" };
        self.run(&format!("{BUCKETS}{ACQUIRE}{unlogged}{USABLE}")).await
    }

    /// Deletes the rows that have been full for at least `full_for`, and returns their number. No
    /// decision changes: a key without a row has a full bucket.
    ///
    /// A row is full by the quota of the call that wrote it. `full_for` should exceed the longest
    /// step back of the server's clock. Each page of 1,000 rows is a statement of its own, which
    /// skips locked rows. The limiter never calls this.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if a statement fails. The pages before it are cleaned up.
    pub async fn clean_up(&self, full_for: Duration) -> Result<u64, StoreError> {
        let grace_us = i64::try_from(full_for.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        let (mut deleted, mut after) = (0, Vec::new());
        loop {
            let from: Vec<u8> = after;
            let rows = self.ask(async move |session| session.clean_up(&from, grace_us).await).await?;
            let wrong = |error| StoreError::new(StoreErrorKind::Permanent, error);
            let Some(row) = rows.first() else { return Ok(deleted) };
            deleted += u64::try_from(row.try_get::<_, i64>(0).map_err(wrong)?).unwrap_or(0);
            match row.try_get::<_, Option<Vec<u8>>>(1).map_err(wrong)? {
                Some(last) => after = last,
                None => return Ok(deleted),
            }
        }
    }

    /// Runs statements of a migration.
    pub(super) async fn run(&self, statements: &str) -> Result<(), StoreError> {
        Ok(self.sessions.session().await?.run(&format!("{ALONE};\n{statements}")).await?)
    }

    /// Asks in a task, which outlives its caller: so a server that hangs is noticed also if no
    /// caller waits that long.
    pub(super) async fn ask<F>(
        &self,
        ask: impl FnOnce(Arc<PostgresSession>) -> F,
    ) -> Result<Vec<Row>, StoreError>
    where
        F: Future<Output = Result<Vec<Row>, Fault>> + Send + 'static,
    {
        let session = self.sessions.session().await?;
        match tokio::spawn(ask(session)).await {
            Ok(answer) => Ok(answer?),
            Err(error) => Err(StoreError::new(StoreErrorKind::Unknown, error)),
        }
    }
}

impl Store for PostgresStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let arrays = Arrays::of(ops);
        let rows = self.ask(|session| async move { session.decide(&arrays).await }).await?;
        answer(ops, &rows)
    }
}

async fn make<T>(config: Config, tls: T, options: &PostgresOptions) -> Result<PostgresSession, Fault>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await.map_err(of_connect)?;
    // An error of the connection is also one of its calls.
    tokio::spawn(connection);
    PostgresSession::set_up(client, options).await
}
