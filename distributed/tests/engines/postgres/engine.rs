//! A server of PostgreSQL, and a second connection to it.

use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use tollgate_distributed::{PostgresOptions, PostgresStore, StoreError, StoreErrorKind, TokenRequester};
use tollgate_test_servers::postgres::{Postgres as Program, postgres_is_installed};
use tollgate_test_servers::process::Process;

use crate::engine::{Counts, Engine, Options, PATIENT, Rows, Server, Sql, Stored, bytes_of_count, count_of};
use crate::suite::intervals::{Interval, Table};

pub(crate) struct Postgres {
    pub(crate) store: PostgresStore,
    pub(crate) other: Client,
    pub(crate) server: Program,
}

/// Connects to a server.
pub(crate) async fn client(server: &Program) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Returns a store at a URL.
pub(crate) fn store(url: &str, options: PostgresOptions) -> PostgresStore {
    PostgresStore::connect_with(url.parse().unwrap(), NoTls, options)
}

/// Returns the options of a store with some patience.
pub(crate) fn options(Options { connections, patience }: Options) -> PostgresOptions {
    PostgresOptions {
        connections,
        connect_timeout: patience,
        statement_timeout: patience,
        lock_timeout: patience / 2,
        ..PostgresOptions::default()
    }
}

impl Postgres {
    /// Starts a server, and a store with options. There is none if PostgreSQL is not installed.
    pub(crate) async fn start_with(options: PostgresOptions) -> Option<Postgres> {
        if !postgres_is_installed() {
            return None;
        }
        let server = Program::start(&[]).unwrap();
        let store = store(&server.url(), options);
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        Some(Postgres { store, other: client(&server).await, server })
    }

    /// Reads a number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.other.query_one(sql, &[]).await.unwrap().get(0)
    }
}

impl Engine for Postgres {
    type Store = PostgresStore;

    const CHECKS_ROWS: bool = false;

    async fn start() -> Option<Postgres> {
        Postgres::start_with(options(PATIENT)).await
    }

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    fn connect(&self, with: Options) -> PostgresStore {
        store(&self.server.url(), options(with))
    }

    async fn rows(&mut self) -> Rows {
        let select = "SELECT id, credits, last_us, unit, full_us FROM tollgate_buckets";
        let rows = self.other.query(select, &[]).await.unwrap();
        let row = |row: tokio_postgres::Row| {
            let (credits, last_us, unit) = (row.get(1), row.get(2), row.get(3));
            (row.get(0), Stored { credits, last_us, unit, full_us: row.get(4) })
        };
        rows.into_iter().map(row).collect()
    }

    async fn put(&mut self, rows: &Rows) {
        let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
        let column = |number: fn(&Stored) -> i64| rows.values().map(number).collect::<Vec<_>>();
        let columns = [
            column(|row| row.credits),
            column(|row| row.last_us),
            column(|row| row.unit),
            column(|row| row.full_us),
        ];
        let put = "INSERT INTO tollgate_buckets SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[],
            $4::bigint[], $5::bigint[]) ON CONFLICT (id) DO UPDATE SET credits = excluded.credits,
            last_us = excluded.last_us, unit = excluded.unit, full_us = excluded.full_us";
        self.other.execute(put, &[&keys, &columns[0], &columns[1], &columns[2], &columns[3]]).await.unwrap();
    }

    async fn delete(&mut self, keys: &[Vec<u8>]) {
        self.other.execute("DELETE FROM tollgate_buckets WHERE id = ANY($1)", &[&keys]).await.unwrap();
    }

    async fn counts(&mut self) -> Counts {
        let rows =
            self.other.query("SELECT id, start_us, used, end_us FROM tollgate_counts", &[]).await.unwrap();
        let read =
            |row: tokio_postgres::Row| (row.get(0), count_of(row.get(1), row.get::<_, &[u8]>(2), row.get(3)));
        rows.into_iter().map(read).collect()
    }

    async fn put_counts(&mut self, counts: &Counts) {
        let keys: Vec<&[u8]> = counts.keys().map(Vec::as_slice).collect();
        let starts: Vec<i64> = counts.values().map(|count| count.start_us as i64).collect();
        let used: Vec<Vec<u8>> = counts.values().map(|count| bytes_of_count(&count.used)).collect();
        let ends: Vec<i64> = counts.values().map(|count| count.end_us as i64).collect();
        let put = "INSERT INTO tollgate_counts SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[],
            $4::bigint[]) ON CONFLICT (id) DO UPDATE SET start_us = excluded.start_us, used = excluded.used,
            end_us = excluded.end_us";
        self.other.execute(put, &[&keys, &starts, &used, &ends]).await.unwrap();
    }

    async fn put_used(&mut self, key: &[u8], start_us: u64, used: &[u8], end_us: u64) -> bool {
        let put = "INSERT INTO tollgate_counts VALUES ($1, $2, $3, $4)";
        self.other.execute(put, &[&key, &(start_us as i64), &used, &(end_us as i64)]).await.is_ok()
    }

    async fn take_as_before(&mut self) -> bool {
        // `fleet:1`; then the microseconds to the brim, no spent tokens and none that go back, and
        // the fewest and the most tokens.
        let take = "SELECT * FROM tollgate_acquire_1('{\"666c6565743a31\"}', \
            '{400000,400000,0,1,1,4000,800000,800000,0,0,1,1}')";
        self.other.query_one(take, &[]).await.unwrap().get::<_, i64>("granted") == 1
    }

    async fn delete_counts(&mut self, keys: &[Vec<u8>]) {
        self.other.execute("DELETE FROM tollgate_counts WHERE id = ANY($1)", &[&keys]).await.unwrap();
    }

    async fn deadlocks(&mut self) -> u64 {
        self.server.log().matches("deadlock detected").count() as u64
    }

    async fn lift_constraints(&mut self, wrong: &[Stored]) {
        for row in wrong {
            let insert = "INSERT INTO tollgate_buckets VALUES ('wrong', $1, $2, $3, 0)";
            assert!(self.other.execute(insert, &[&row.credits, &row.last_us, &row.unit]).await.is_err());
        }
        let drop = "DO $$ DECLARE c record; BEGIN
            FOR c IN SELECT conname FROM pg_constraint
                WHERE conrelid = 'tollgate_buckets'::regclass AND contype = 'c'
            LOOP EXECUTE format('ALTER TABLE tollgate_buckets DROP CONSTRAINT %I', c.conname); END LOOP; END $$";
        self.run(drop).await;
    }
}

impl Server for Postgres {
    const WRONG_URLS: &[&str] = &["postgres://a:b:c@nowhere:port/"];
    const FROZEN: (StoreErrorKind, &str) = (StoreErrorKind::Unknown, "");

    fn process(&mut self) -> &mut Process {
        self.server.process()
    }

    fn restart(&mut self) {
        self.server.restart().unwrap();
    }

    fn open(url: &str) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect(url)
    }

    fn url(port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }

    async fn strangers(&mut self) -> Vec<PostgresStore> {
        self.run("CREATE ROLE guest LOGIN").await;
        let url = format!("{}?", self.server.url());
        let wrong = [("/postgres@", "/nobody@"), ("/postgres@", "/guest@"), ("/postgres?", "/nothing?")];
        wrong.map(|(from, to)| PostgresStore::connect(&url.replace(from, to)).unwrap()).into()
    }

    async fn end_sessions(&mut self) -> u64 {
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        self.number(kill).await as u64
    }
}

impl Sql for Postgres {
    const TOO_LONG: (Duration, &str) = (Duration::from_secs(4), "lock timeout");
    const MISSING: (&str, &str) = ("DROP FUNCTION tollgate_acquire_1", "tollgate_acquire_1");

    async fn run(&mut self, sql: &str) {
        self.other.batch_execute(sql).await.unwrap();
    }

    async fn wait_for_a_lock(&mut self) {
        while self.number("SELECT count(*) FROM pg_locks WHERE NOT granted").await == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the version of the row, without the number of a session that locked it.
    async fn writes(&mut self) -> String {
        let version = "SELECT (ctid, xmin)::text FROM tollgate_buckets";
        self.other.query_one(version, &[]).await.unwrap().get(0)
    }

    async fn migrate(&self) {
        self.store.migrate().await.unwrap();
    }

    async fn clean_up(&self, time: Duration) -> u64 {
        self.store.clean_up(time).await.unwrap()
    }
}

/// A server with the table of intervals.
pub(crate) struct Intervals {
    requester: TokenRequester<PostgresStore>,
    other: Client,
    _server: Program,
}

impl Table for Intervals {
    type Store = PostgresStore;

    async fn start() -> Option<Intervals> {
        let Postgres { store, other, server } = Postgres::start().await?;
        let requester = TokenRequester::new(store);
        requester.migrate().await.unwrap();
        requester.migrate().await.unwrap();
        Some(Intervals { requester, other, _server: server })
    }

    fn requester(&self) -> &TokenRequester<PostgresStore> {
        &self.requester
    }

    async fn row(&mut self, id: &str) -> Interval {
        let select = "SELECT available::bigint, capacity::bigint, refill_seconds::bigint,
            (extract(epoch FROM last_refill_at) * 1000000)::bigint FROM token_buckets WHERE id = $1";
        let row = self.other.query_one(select, &[&id]).await.unwrap();
        Interval {
            available: row.get(0),
            capacity: row.get(1),
            refill_seconds: row.get(2),
            last_us: row.get(3),
        }
    }

    async fn put(&mut self, id: &str, row: Interval) {
        let put =
            "INSERT INTO token_buckets VALUES ($1, $2, $3, $4, 'epoch'::timestamptz + $5 * interval '1 us')
            ON CONFLICT (id) DO UPDATE SET available = $2, capacity = $3, refill_seconds = $4,
            last_refill_at = excluded.last_refill_at";
        let [available, capacity, seconds] =
            [row.available, row.capacity, row.refill_seconds].map(|n| n as i32);
        let last_us = row.last_us as f64;
        self.other.execute(put, &[&id, &available, &capacity, &seconds, &last_us]).await.unwrap();
    }
}
