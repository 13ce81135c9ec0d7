//! A server of PostgreSQL, and a second connection to it.

use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use tollgate_distributed::{PostgresOptions, PostgresStore, TokenRequester};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};

use crate::sql::intervals::{Interval, Table};
use crate::sql::world::{Rows, Stored, World};

pub(crate) struct Server {
    pub(crate) store: PostgresStore,
    pub(crate) other: Client,
    pub(crate) server: Postgres,
}

/// Connects to a server.
pub(crate) async fn client(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Returns options under which no call fails on a busy machine: a row is locked for as long as a
/// process of the server has no processor.
pub(crate) fn patient() -> PostgresOptions {
    let minute = Duration::from_secs(60);
    PostgresOptions { lock_timeout: minute, statement_timeout: minute, ..PostgresOptions::default() }
}

/// Returns a store with options.
pub(crate) fn store(server: &Postgres, options: PostgresOptions) -> PostgresStore {
    PostgresStore::connect_with(server.url().parse().unwrap(), NoTls, options)
}

impl Server {
    /// Starts a server with the table of buckets. There is none if PostgreSQL is not installed.
    pub(crate) async fn start(options: PostgresOptions) -> Option<Server> {
        if !postgres_is_installed() {
            return None;
        }
        let server = Postgres::start(&[]).unwrap();
        let store = store(&server, options);
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        Some(Server { store, other: client(&server).await, server })
    }
}

impl World for Server {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
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
}

/// A server with the table of intervals.
pub(crate) struct Intervals {
    requester: TokenRequester<PostgresStore>,
    other: Client,
    _server: Postgres,
}

impl Intervals {
    pub(crate) async fn start() -> Option<Intervals> {
        let Server { store, other, server } = Server::start(patient()).await?;
        let requester = TokenRequester::new(store);
        requester.migrate().await.unwrap();
        requester.migrate().await.unwrap();
        Some(Intervals { requester, other, _server: server })
    }
}

impl Table for Intervals {
    type Store = PostgresStore;

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
