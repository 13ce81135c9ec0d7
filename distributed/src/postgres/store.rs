//! The store of PostgreSQL.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryRow, Socket};

use super::fault;
use super::options::PostgresOptions;
use super::session::PostgresSession;
use super::statement::{acquire, acquire_all, answer, bytes, clean_up};
use crate::sql::fault::Fault;
use crate::sql::sessions::{Connect, Sessions};
use crate::sql::text;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lanes;
use crate::store::op::{Op, Store, settle};
use crate::store::url_options::UrlOptions;

const BUCKETS: &str = include_str!("../../migrations/postgres/buckets.sql");
const COUNTS: &str = include_str!("../../migrations/postgres/counts.sql");
const ALL: &str = include_str!("../../migrations/postgres/all.sql");
const ACQUIRE: &str = include_str!("../../migrations/postgres/acquire.sql");
const UNLOGGED: &str = include_str!("../../migrations/postgres/unlogged.sql");

/// The end of a migration: it needs each column and each right of a call.
const USABLE: &str = "INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us)
        SELECT id, credits, last_us, unit, full_us FROM tollgate_buckets WHERE false;
    UPDATE tollgate_buckets SET credits = 0 WHERE false;
    INSERT INTO tollgate_counts (id, start_us, used, end_us)
        SELECT id, start_us, used, end_us FROM tollgate_counts WHERE false;
    UPDATE tollgate_counts SET end_us = 0 WHERE false";

/// The start of a migration: one at a time, as two would both create the table, and on disk when it
/// returns.
const ALONE: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
    SET LOCAL synchronous_commit = on;
    SELECT pg_advisory_xact_lock(7310314510386716005)";

/// Buckets and counts in tables of PostgreSQL.
///
/// A batch of calls is one transaction and one round trip, which sets and prepares nothing on the
/// connection: a pooler may give it to other clients. A function of PL/pgSQL decides each call. The
/// clock is the server's. A call that changes nothing takes no lock and writes nothing. The
/// exception is a call that lost a race for the last tokens: it already holds the lock of the row.
///
/// Connections are made when they are needed, and replaced when they have ended. A statement goes
/// on if its caller is dropped. The tables and the functions must exist before the first call: see
/// [`migrate`](Self::migrate). A clone is another handle to the same store.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    sessions: Arc<Sessions<PostgresSession>>,
    options: PostgresOptions,
    lanes: Lanes,
}

impl PostgresStore {
    /// Returns a store at a URL such as `postgres://user:password@host/database`, with the default
    /// options and without TLS. It connects at its first call.
    ///
    /// # Errors
    ///
    /// A permanent error if the URL is wrong, or if it has `sslmode=require`.
    pub fn connect(url: &str) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect_to(url, PostgresOptions::default())
    }

    fn connect_to(url: &str, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let wrong = |why: String| StoreError::new(StoreErrorKind::Permanent, why);
        let config: Config = url.parse().map_err(|error| wrong(fault::text(&error)))?;
        if config.get_ssl_mode() == SslMode::Require {
            let why = "sslmode=require needs TLS, which a store of a URL has not: sslmode=disable and sslmode=prefer go without";
            return Err(wrong(why.to_owned()));
        }
        Ok(PostgresStore::connect_with(config, NoTls, options))
    }

    /// Returns a store with options, and with TLS unless `tls` is `NoTls`. It connects at its first
    /// call.
    pub fn connect_with<T>(config: Config, tls: T, options: PostgresOptions) -> PostgresStore
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
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
        let sessions = Arc::new(Sessions::new(options.connections, connect));
        PostgresStore { sessions, options, lanes: Lanes::default() }
    }

    /// Returns a store on a connection of the caller. Another task must poll its
    /// [`Connection`](tokio_postgres::Connection). After the connection has ended, each call fails
    /// with a permanent error.
    #[must_use]
    pub fn with_client(client: Client) -> PostgresStore {
        let options = PostgresOptions::default();
        let session = Mutex::new(Some(PostgresSession::new(client, &options, false)));
        let connect: Connect<PostgresSession> = Arc::new(move || {
            let session = session.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ended = || Fault::new(StoreErrorKind::Permanent, "the connection of the store has ended");
            Box::pin(async move { session.ok_or_else(ended) })
        });
        PostgresStore { sessions: Arc::new(Sessions::new(1, connect)), options, lanes: Lanes::default() }
    }

    /// Creates the tables and the functions if they are missing, which needs the right to create
    /// them. If they are there, it needs the rights of a call only.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server refuses, or if a call cannot use the table.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let unlogged = if self.options.unlogged { UNLOGGED } else { "" };
        self.run(&format!("{BUCKETS}{ACQUIRE}{COUNTS}{ALL}{unlogged}{USABLE}")).await
    }

    /// Deletes the rows of buckets that have been full for at least `full_for`, and of counts whose
    /// windows have been over for as long, and returns their number. No decision changes: a key
    /// without a row has a full bucket, and a count of no token.
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
        let mut deleted = 0;
        for table in [("tollgate_buckets", "full_us"), ("tollgate_counts", "end_us")] {
            let mut after = bytes(b"");
            loop {
                let rows = self.ask(clean_up(table, &after, grace_us)).await?;
                let cell = |column| rows.first().and_then(|row| row.get(column));
                deleted += cell(0).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
                let Some(last) = cell(1) else { break };
                after = last.to_owned();
            }
        }
        Ok(deleted)
    }

    /// Runs statements of a migration.
    pub(super) async fn run(&self, statements: &str) -> Result<(), StoreError> {
        Ok(self.sessions.session().await?.run(&format!("{ALONE};\n{statements}")).await?)
    }

    /// Asks in a task, which outlives its caller: so a server that hangs is noticed also if no
    /// caller waits that long.
    pub(super) async fn ask(&self, statement: String) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let session = self.sessions.session().await?;
        match tokio::spawn(async move { session.ask(&statement).await }).await {
            Ok(answer) => Ok(answer?),
            Err(error) => Err(StoreError::new(StoreErrorKind::Unknown, error)),
        }
    }
}

/// Returns a store at a URL with options, which connects at its first call.
pub(crate) fn open(url: &str) -> Result<PostgresStore, StoreError> {
    let times = ["connect_timeout_ms", "statement_timeout_ms", "lock_timeout_ms"];
    let names = [&times[..], &["connections", "synchronous_commit", "unlogged"]].concat();
    let (url, given) = UrlOptions::split(url, &names);
    let mut options = PostgresOptions::default();
    given.set("connections", &mut options.connections)?;
    given.set_time("connect_timeout_ms", &mut options.connect_timeout)?;
    given.set_time("statement_timeout_ms", &mut options.statement_timeout)?;
    given.set_time("lock_timeout_ms", &mut options.lock_timeout)?;
    given.set("synchronous_commit", &mut options.synchronous_commit)?;
    given.set("unlogged", &mut options.unlogged)?;
    PostgresStore::connect_to(&url, options)
}

impl Store for PostgresStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        if ops.is_empty() {
            return Ok(());
        }
        let rows = self.ask(acquire(ops)).await?;
        answer(ops, &rows)
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        let (statement, order) = acquire_all(ops);
        let rows = self.ask(statement).await?;
        let text = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
        text::answer(ops, &order, text)?;
        Ok(settle(ops))
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }
}

async fn make<T>(config: Config, tls: T, options: &PostgresOptions) -> Result<PostgresSession, Fault>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await.map_err(fault::of_connect)?;
    // An error of the connection is also one of its calls.
    tokio::spawn(connection);
    Ok(PostgresSession::new(client, options, true))
}
