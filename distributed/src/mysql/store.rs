//! The store of MariaDB.

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::{Conn, Error, Opts, Pool, Row};
use tokio::time::timeout;

use super::fault::of_connect;
use super::options::MySqlOptions;
use super::session::MySqlSession;
use super::statements::{ALL, Statements, acquire, order, push_bytes};
use crate::sql::fault::Fault;
use crate::sql::sessions::{Connect, Sessions};
use crate::sql::text::answer;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lanes;
use crate::store::op::{Op, Store, settle};
use crate::store::url_options::UrlOptions;

const BUCKETS: &str = include_str!("../../migrations/mysql/buckets.sql");
const ACQUIRE: &str = include_str!("../../migrations/mysql/acquire.sql");
const COUNTS: &str = include_str!("../../migrations/mysql/counts.sql");
const COUNT: &str = include_str!("../../migrations/mysql/count.sql");

/// Buckets and counts in tables of MariaDB.
///
/// A batch of calls is one transaction and one round trip: a call of a stored procedure for each
/// key, in the order of the keys. The clock is the server's. A call that changes nothing takes no
/// lock and writes nothing. The exception is a call that lost a race for the last tokens: it
/// already holds the lock of the row.
///
/// Connections are made when they are needed, and replaced when they have ended. If its caller is
/// dropped, a batch that was sent goes on, and another one is not sent. The tables and the
/// procedures must exist before the first call: see [`migrate`](Self::migrate). A clone is another
/// handle to the same store.
///
/// The name is that of the protocol and of the client. The tests run MariaDB, and nothing was run
/// on MySQL: it has `CREATE PROCEDURE IF NOT EXISTS` from 8.0.29 on, and not the collation of
/// `token_buckets`. In a cluster with several writers, all clients should write to the same server.
#[derive(Clone, Debug)]
pub struct MySqlStore {
    sessions: Arc<Sessions<MySqlSession>>,
    lanes: Lanes,
}

impl MySqlStore {
    /// Returns a store at a URL such as `mysql://user:password@host/database`, with the default
    /// options. It connects at its first call. For TLS, add `?require_ssl=true` and enable a TLS
    /// feature of the crate `mysql_async`.
    ///
    /// # Errors
    ///
    /// A permanent error if the URL is wrong, or if it asks for TLS without such a feature.
    pub fn connect(url: &str) -> Result<MySqlStore, StoreError> {
        MySqlStore::connect_to(url, MySqlOptions::default())
    }

    fn connect_to(url: &str, options: MySqlOptions) -> Result<MySqlStore, StoreError> {
        let opts = Opts::from_url(url).map_err(|error| StoreError::new(StoreErrorKind::Permanent, error))?;
        if opts.ssl_opts().is_some() && lacks_tls() {
            let why =
                "require_ssl=true needs a feature of the crate mysql_async: native-tls-tls or rustls-tls";
            return Err(StoreError::new(StoreErrorKind::Permanent, why));
        }
        Ok(MySqlStore::connect_with(opts, options))
    }

    /// Returns a store with options. It connects at its first call.
    pub fn connect_with(opts: impl Into<Opts>, options: MySqlOptions) -> MySqlStore {
        let opts = opts.into();
        MySqlStore::new(options, move || Conn::new(opts.clone()))
    }

    /// Returns a store on connections of a pool, with the default options. It keeps up to 4
    /// connections of the pool, each until it ends.
    #[must_use]
    pub fn with_pool(pool: Pool) -> MySqlStore {
        MySqlStore::new(MySqlOptions::default(), move || {
            let pool = pool.clone();
            async move { pool.get_conn().await }
        })
    }

    fn new<F>(options: MySqlOptions, connect: impl Fn() -> F + Send + Sync + 'static) -> MySqlStore
    where
        F: Future<Output = Result<Conn, Error>> + Send + 'static,
    {
        let connections = options.connections;
        let connect: Connect<MySqlSession> = Arc::new(move || {
            let (made, options) = (connect(), options.clone());
            Box::pin(async move {
                let late = |_| Fault::new(StoreErrorKind::Refused, "the connection took too long");
                let session = async {
                    let connection = made.await.map_err(of_connect)?;
                    MySqlSession::set_up(connection, options.call_timeout).await
                };
                timeout(options.connect_timeout, session).await.map_err(late)?
            })
        });
        MySqlStore { sessions: Arc::new(Sessions::new(connections, connect)), lanes: Lanes::default() }
    }

    /// Creates the tables and the procedures if they are missing, which needs the right to create
    /// them. If they are there, it needs the rights of a call only.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server refuses.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let buckets = [("tollgate_buckets", BUCKETS), ("tollgate_acquire_1", ACQUIRE)];
        self.create(buckets).await?;
        self.create([("tollgate_counts", COUNTS), ("tollgate_count_1", COUNT)]).await
    }

    /// Runs the statement of each table or routine that the account does not see.
    pub(super) async fn create(&self, parts: [(&str, &str); 2]) -> Result<(), StoreError> {
        for (name, statement) in parts {
            let seen = format!(
                "SELECT EXISTS (SELECT 1 FROM information_schema.tables
                    WHERE table_schema = DATABASE() AND table_name = '{name}')
                 OR EXISTS (SELECT 1 FROM information_schema.routines
                    WHERE routine_schema = DATABASE() AND routine_name = '{name}')"
            );
            if !cell::<bool>(&self.ask(Statements::of(seen)).await?, 0)? {
                self.ask(Statements::of(statement)).await?;
            }
        }
        Ok(())
    }

    /// Deletes the rows of buckets that have been full for at least `full_for`, and of counts whose
    /// windows have been over for as long, and returns their number. No decision changes: a key
    /// without a row has a full bucket, and a count of no token.
    ///
    /// A row is full by the quota of the call that wrote it. `full_for` should exceed the longest
    /// step back of the server's clock. Each page of 1,000 rows is a transaction of its own. The
    /// limiter never calls this.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if a statement fails. The pages before it are cleaned up.
    pub async fn clean_up(&self, full_for: Duration) -> Result<u64, StoreError> {
        let grace_us = i64::try_from(full_for.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        let buckets = self.clean_up_table("tollgate_buckets", "full_us", grace_us).await?;
        Ok(buckets + self.clean_up_table("tollgate_counts", "end_us", grace_us).await?)
    }

    /// Deletes the rows that have decided as missing ones since a time before now: from `until` on.
    async fn clean_up_table(&self, table: &str, until: &str, grace_us: i64) -> Result<u64, StoreError> {
        let over = format!("{until} < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) - {grace_us}");
        let (mut deleted, mut after) = (0, String::from("x''"));
        loop {
            let page = format!(
                "SELECT MAX(id), COALESCE(SUM({over}), 0) FROM
                 (SELECT id, {until} FROM {table} WHERE id > {after} ORDER BY id LIMIT 1000) AS page"
            );
            let rows = self.ask(Statements::of(page)).await?;
            let (last, found): (Option<Vec<u8>>, u64) = (cell(&rows, 0)?, cell(&rows, 1)?);
            let Some(last) = last else { return Ok(deleted) };
            let mut end = String::new();
            push_bytes(&mut end, &last);
            if found > 0 {
                let delete = format!(
                    "DELETE FROM {table} WHERE id > {after} AND id <= {end} AND {over}; SELECT ROW_COUNT()"
                );
                let rows = self.ask(Statements::of(delete)).await?;
                deleted += cell::<u64>(&rows, 0)?;
            }
            after = end;
        }
    }

    /// Decides calls in a transaction with this end.
    async fn decide(&self, ops: &mut [Op<'_>], end: &str) -> Result<(), StoreError> {
        let order = order(ops);
        let rows = self.ask(acquire(ops, &order, end)).await?;
        answer(ops, &order, &cell::<String>(&rows, 0)?)
    }

    pub(super) async fn ask(&self, statements: Statements) -> Result<Vec<Row>, StoreError> {
        Ok(self.sessions.session().await?.ask(statements).await?)
    }
}

/// Returns a store at a URL with options, which connects at its first call.
pub(crate) fn open(url: &str) -> Result<MySqlStore, StoreError> {
    let names = ["connections", "connect_timeout_ms", "call_timeout_ms"];
    let (url, given) = UrlOptions::split(url, &names);
    let mut options = MySqlOptions::default();
    given.set("connections", &mut options.connections)?;
    given.set_time("connect_timeout_ms", &mut options.connect_timeout)?;
    given.set_time("call_timeout_ms", &mut options.call_timeout)?;
    MySqlStore::connect_to(&url, options)
}

/// A type that the client has as well if it is compiled with TLS.
enum TlsError {}

fn lacks_tls() -> bool {
    use mysql_async::*;

    // The inner import comes before the type above. It has `Opts` in any case.
    let _: Option<Opts>;
    TypeId::of::<TlsError>() == TypeId::of::<self::TlsError>()
}

impl Store for MySqlStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        if ops.is_empty() {
            return Ok(());
        }
        self.decide(ops, "COMMIT").await
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        self.decide(ops, ALL).await?;
        Ok(settle(ops))
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }
}

/// Reads a column of an answer of one row.
///
/// # Errors
///
/// An error with an unknown effect if there is not one row, or if the column has another type.
pub(super) fn cell<T: mysql_async::prelude::FromValue>(rows: &[Row], column: usize) -> Result<T, StoreError> {
    let wrong =
        || StoreError::new(StoreErrorKind::Unknown, format!("the reply has no column {column}: {rows:?}"));
    let [row] = rows else { return Err(wrong()) };
    row.get_opt(column).and_then(Result::ok).ok_or_else(wrong)
}
