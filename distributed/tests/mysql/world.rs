//! A server of MariaDB, and a second connection to it.

use std::fmt::Write;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tollgate_distributed::{MySqlOptions, MySqlStore, TokenRequester};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};

use crate::sql::intervals::{Interval, Table};
use crate::sql::world::{Rows, Stored, World};

pub(crate) struct Server {
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

/// Returns a store with options.
pub(crate) fn store(server: &MariaDb, options: MySqlOptions) -> MySqlStore {
    MySqlStore::connect_with(mysql_async::Opts::from_url(&server.url()).unwrap(), options)
}

impl Server {
    /// Starts a server with the table of buckets. There is none if MariaDB is not installed.
    pub(crate) async fn start(arguments: &[&str], options: MySqlOptions) -> Option<Server> {
        if !mariadb_is_installed() {
            return None;
        }
        let server = MariaDb::start(arguments).unwrap();
        let store = store(&server, options);
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        Some(Server { store, other: client(&server).await, server })
    }

    /// Returns the options of a client.
    pub(crate) fn opts(&self) -> OptsBuilder {
        OptsBuilder::from_opts(mysql_async::Opts::from_url(&self.server.url()).unwrap())
    }
}

pub(crate) fn literal(key: &[u8]) -> String {
    let mut text = String::from("x'");
    key.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text + "'"
}

impl World for Server {
    type Store = MySqlStore;

    fn store(&self) -> &MySqlStore {
        &self.store
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
}

/// A server with the table of intervals.
pub(crate) struct Intervals {
    requester: TokenRequester<MySqlStore>,
    pub(crate) other: Conn,
    pub(crate) server: MariaDb,
}

impl Intervals {
    pub(crate) async fn start() -> Option<Intervals> {
        let Server { store, other, server } = Server::start(&[], MySqlOptions::default()).await?;
        let requester = TokenRequester::new(store);
        requester.migrate().await.unwrap();
        requester.migrate().await.unwrap();
        Some(Intervals { requester, other, server })
    }
}

impl Table for Intervals {
    type Store = MySqlStore;

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
