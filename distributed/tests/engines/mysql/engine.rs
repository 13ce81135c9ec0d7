//! A server of MariaDB, and a second connection to it.

use std::fmt::Write;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use tollgate_distributed::{Count, MySqlOptions, MySqlStore, StoreError, StoreErrorKind, TokenRequester};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::process::Process;

use crate::engine::{Counts, Engine, Options, PATIENT, Rows, Server, Sql, Stored, bytes_of_count, count_of};
use crate::suite::intervals::{Interval, Table};

pub(crate) struct MySql {
    pub(crate) store: MySqlStore,
    pub(crate) other: Conn,
    pub(crate) server: MariaDb,
}

/// Connects to a server.
pub(crate) async fn client(server: &MariaDb) -> Conn {
    let mut client = Conn::from_url(server.url()).await.unwrap();
    client.query_drop("SET time_zone = '+00:00'").await.unwrap();
    client
}

impl MySql {
    /// Starts a server with arguments. There is none if MariaDB is not installed.
    pub(crate) async fn start_with(arguments: &[&str]) -> Option<MySql> {
        if !mariadb_is_installed() {
            return None;
        }
        let server = MariaDb::start(arguments).unwrap();
        let store = connect(&server, PATIENT);
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        Some(MySql { store, other: client(&server).await, server })
    }

    /// Returns the options of a client.
    pub(crate) fn opts(&self) -> OptsBuilder {
        OptsBuilder::from_opts(Opts::from_url(&self.server.url()).unwrap())
    }

    /// Returns a number of the server's status.
    pub(crate) async fn status(&mut self, name: &str) -> u64 {
        let row: Option<(String, u64)> =
            self.other.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).await.unwrap();
        row.unwrap().1
    }
}

fn connect(server: &MariaDb, Options { connections, patience }: Options) -> MySqlStore {
    let options = MySqlOptions { connections, connect_timeout: patience, call_timeout: patience };
    MySqlStore::connect_with(Opts::from_url(&server.url()).unwrap(), options)
}

pub(crate) fn literal(key: &[u8]) -> String {
    let mut text = String::from("x'");
    key.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text + "'"
}

impl Engine for MySql {
    type Store = MySqlStore;

    const STEPS: u64 = 30_000;
    const CHECKS_ROWS: bool = false;

    async fn start() -> Option<MySql> {
        MySql::start_with(&[]).await
    }

    fn store(&self) -> &MySqlStore {
        &self.store
    }

    fn connect(&self, options: Options) -> MySqlStore {
        connect(&self.server, options)
    }

    async fn rows(&mut self) -> Rows {
        let select = "SELECT id, credits, last_us, unit, full_us FROM tollgate_buckets";
        let rows = self.other.query_map(select, |(id, credits, last_us, unit, full_us)| {
            (id, Stored { credits, last_us, unit, full_us })
        });
        rows.await.unwrap().into_iter().collect()
    }

    async fn put(&mut self, rows: &Rows) {
        let rows = rows.iter().map(|(key, row)| {
            let Stored { credits, last_us, unit, full_us } = row;
            format!("({},{credits},{last_us},{unit},{full_us})", literal(key))
        });
        let rows: Vec<String> = rows.collect();
        for page in rows.chunks(10_000) {
            self.other
                .query_drop(format!("REPLACE INTO tollgate_buckets VALUES {}", page.join(",")))
                .await
                .unwrap();
        }
    }

    async fn delete(&mut self, keys: &[Vec<u8>]) {
        let keys: Vec<String> = keys.iter().map(|key| literal(key)).collect();
        if !keys.is_empty() {
            let delete = format!("DELETE FROM tollgate_buckets WHERE id IN ({})", keys.join(","));
            self.other.query_drop(delete).await.unwrap();
        }
    }

    async fn counts(&mut self) -> Counts {
        let select = "SELECT id, start_us, used, end_us FROM tollgate_counts";
        let read = |(id, start_us, used, end_us): (Vec<u8>, i64, Vec<u8>, i64)| {
            (id, count_of(start_us, &used, end_us))
        };
        self.other.query_map(select, read).await.unwrap().into_iter().collect()
    }

    async fn put_counts(&mut self, counts: &Counts) {
        let rows: Vec<String> = counts
            .iter()
            .map(|(key, Count { start_us, used, end_us })| {
                format!("({},{start_us},{},{end_us})", literal(key), literal(&bytes_of_count(used)))
            })
            .collect();
        if !rows.is_empty() {
            let replace = format!("REPLACE INTO tollgate_counts VALUES {}", rows.join(","));
            self.other.query_drop(replace).await.unwrap();
        }
    }

    async fn put_used(&mut self, key: &[u8], start_us: u64, used: &[u8], end_us: u64) -> bool {
        let (key, used) = (literal(key), literal(used));
        let put = format!("INSERT INTO tollgate_counts VALUES ({key},{start_us},{used},{end_us})");
        self.other.query_drop(put).await.is_ok()
    }

    async fn take_as_before(&mut self) -> bool {
        // `fleet:1`; then the microseconds to the brim, no spent tokens and none that go back, and
        // the fewest and the most tokens.
        let take = "SET @tollgate = '';START TRANSACTION;CALL tollgate_acquire_1(x'666c6565743a31',\
            400000,400000,0,1,1,4000,800000,800000,0,0,1,1);COMMIT;SELECT @tollgate";
        let mut results = self.other.query_iter(take).await.unwrap();
        let mut answer = None;
        while !results.is_empty() {
            answer = results.collect::<String>().await.unwrap().pop().or(answer);
        }
        answer.unwrap().starts_with("1,")
    }

    async fn delete_counts(&mut self, keys: &[Vec<u8>]) {
        let keys: Vec<String> = keys.iter().map(|key| literal(key)).collect();
        if !keys.is_empty() {
            let delete = format!("DELETE FROM tollgate_counts WHERE id IN ({})", keys.join(","));
            self.other.query_drop(delete).await.unwrap();
        }
    }

    async fn deadlocks(&mut self) -> u64 {
        self.status("Innodb_deadlocks").await
    }

    async fn lift_constraints(&mut self, wrong: &[Stored]) {
        for Stored { credits, last_us, unit, full_us } in wrong {
            let insert = format!(
                "INSERT INTO tollgate_buckets VALUES ('wrong', {credits}, {last_us}, {unit}, {full_us})"
            );
            assert!(self.other.query_drop(insert).await.is_err());
        }
        self.other.query_drop("SET check_constraint_checks = 0").await.unwrap();
    }
}

impl Server for MySql {
    const WRONG_URLS: &[&str] = &["postgres://nowhere", "", "mysql://a:b:c@nowhere:port/"];
    // The pool waits for a connection of the call before.
    const FROZEN: (StoreErrorKind, &str) = (StoreErrorKind::Refused, "before the call was sent");

    fn process(&mut self) -> &mut Process {
        self.server.process()
    }

    fn restart(&mut self) {
        self.server.restart().unwrap();
    }

    fn open(url: &str) -> Result<MySqlStore, StoreError> {
        MySqlStore::connect(url)
    }

    fn url(port: u16) -> String {
        format!("mysql://test@127.0.0.1:{port}/tests")
    }

    async fn strangers(&mut self) -> Vec<MySqlStore> {
        self.run("CREATE USER guest@'127.0.0.1'").await;
        let wrong = [("test@", "nobody@"), ("test@", "guest@"), ("/tests", "/nothing")];
        wrong.map(|(from, to)| MySqlStore::connect(&self.server.url().replace(from, to)).unwrap()).into()
    }

    async fn end_sessions(&mut self) -> u64 {
        let list =
            "SELECT id FROM information_schema.processlist WHERE user = 'test' AND id <> CONNECTION_ID()";
        let sessions: Vec<u64> = self.other.query(list).await.unwrap();
        let mut ended = 0;
        for session in sessions {
            ended += u64::from(self.other.query_drop(format!("KILL {session}")).await.is_ok());
        }
        ended
    }
}

impl Sql for MySql {
    const TOO_LONG: (Duration, &str) = (Duration::from_secs(10), "1205");
    const MISSING: (&str, &str) = ("DROP PROCEDURE tollgate_acquire_1", "tollgate_acquire_1");

    async fn run(&mut self, sql: &str) {
        self.other.query_drop(sql).await.unwrap();
    }

    async fn wait_for_a_lock(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        while self.status("Innodb_row_lock_current_waits").await == 0 {
            assert!(Instant::now() < end, "no session waits");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn writes(&mut self) -> String {
        let mut writes = String::new();
        for name in ["Handler_update", "Handler_write", "Innodb_row_lock_waits"] {
            write!(writes, "{name} {} ", self.status(name).await).unwrap();
        }
        writes
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
    requester: TokenRequester<MySqlStore>,
    pub(crate) other: Conn,
    pub(crate) server: MariaDb,
}

impl Table for Intervals {
    type Store = MySqlStore;

    async fn start() -> Option<Intervals> {
        let MySql { store, other, server } = MySql::start().await?;
        let requester = TokenRequester::new(store);
        requester.migrate().await.unwrap();
        requester.migrate().await.unwrap();
        Some(Intervals { requester, other, server })
    }

    fn requester(&self) -> &TokenRequester<MySqlStore> {
        &self.requester
    }

    async fn row(&mut self, id: &str) -> Interval {
        let select = format!(
            "SELECT available, capacity, refill_seconds, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', last_refill_at)
             FROM token_buckets WHERE id = {}",
            literal(id.as_bytes())
        );
        let row: Option<(i64, i64, i64, i64)> = self.other.query_first(select).await.unwrap();
        let (available, capacity, refill_seconds, last_us) = row.unwrap();
        Interval { available, capacity, refill_seconds, last_us }
    }

    async fn put(&mut self, id: &str, row: Interval) {
        let Interval { available, capacity, refill_seconds, last_us } = row;
        let put = format!(
            "REPLACE INTO token_buckets VALUES ({}, {available}, {capacity}, {refill_seconds},
             TIMESTAMP '1970-01-01 00:00:00' + INTERVAL {last_us} MICROSECOND)",
            literal(id.as_bytes())
        );
        self.other.query_drop(put).await.unwrap();
    }
}
