//! A file of SQLite, and a second connection to it.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tempfile::TempDir;
use tollgate_distributed::{Bucket, Spec, SqliteStore, TokenRequester};

use crate::engine::{Counts, Engine, Options, Rows, Sql, Stored, bytes_of_count, count_of, exactly, now_us};
use crate::suite::before::{self, KEY, NUMBERS};
use crate::suite::intervals::{Interval, Table};

pub(crate) struct File {
    pub(crate) store: SqliteStore,
    pub(crate) other: Connection,
    pub(crate) path: PathBuf,
    _folder: TempDir,
}

impl File {
    pub(crate) fn open() -> File {
        let folder = TempDir::with_prefix("tollgate-sqlite-").unwrap();
        let path = folder.path().join("buckets");
        let store = SqliteStore::open(&path).unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("PRAGMA synchronous = OFF").unwrap();
        File { store, other, path, _folder: folder }
    }
}

impl Engine for File {
    type Store = SqliteStore;

    async fn start() -> Option<File> {
        Some(File::open())
    }

    fn connect(&self, _: Options) -> SqliteStore {
        SqliteStore::open(&self.path).unwrap()
    }

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn rows(&mut self) -> Rows {
        let mut select = self
            .other
            .prepare_cached("SELECT id, credits, last_us, unit, full_us FROM tollgate_buckets")
            .unwrap();
        let rows = select.query_map([], |row| {
            let (credits, last_us, unit) = (row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((row.get(0)?, Stored { credits, last_us, unit, full_us: row.get(4)? }))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    async fn put(&mut self, rows: &Rows) {
        let transaction = self.other.transaction().unwrap();
        for (key, row) in rows {
            let mut put = transaction
                .prepare_cached("INSERT OR REPLACE INTO tollgate_buckets VALUES (?1, ?2, ?3, ?4, ?5)")
                .unwrap();
            put.execute(params![key, row.credits, row.last_us, row.unit, row.full_us]).unwrap();
        }
        transaction.commit().unwrap();
    }

    async fn delete(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            self.other.execute("DELETE FROM tollgate_buckets WHERE id = ?1", [key]).unwrap();
        }
    }

    async fn counts(&mut self) -> Counts {
        let mut select =
            self.other.prepare_cached("SELECT id, start_us, used, end_us FROM tollgate_counts").unwrap();
        let counts = select.query_map([], |row| {
            Ok((row.get(0)?, count_of(row.get(1)?, &row.get::<_, Vec<u8>>(2)?, row.get(3)?)))
        });
        counts.unwrap().map(Result::unwrap).collect()
    }

    async fn put_counts(&mut self, counts: &Counts) {
        let transaction = self.other.transaction().unwrap();
        for (key, count) in counts {
            let mut put = transaction
                .prepare_cached("INSERT OR REPLACE INTO tollgate_counts VALUES (?1, ?2, ?3, ?4)")
                .unwrap();
            let (start_us, end_us) = (count.start_us as i64, count.end_us as i64);
            put.execute(params![key, start_us, bytes_of_count(&count.used), end_us]).unwrap();
        }
        transaction.commit().unwrap();
    }

    async fn put_used(&mut self, key: &[u8], start_us: u64, used: &[u8], end_us: u64) -> bool {
        let put = "INSERT OR REPLACE INTO tollgate_counts VALUES (?1, ?2, ?3, ?4)";
        self.other.execute(put, params![key, start_us as i64, used, end_us as i64]).is_ok()
    }

    /// The law was in the program, as it is now.
    async fn take_as_before(&mut self) -> bool {
        let transaction = self.other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let read = "SELECT credits, last_us, unit FROM tollgate_buckets WHERE id = ?1";
        let row = transaction.query_row(read, [KEY], |row| {
            let [credits, last_us, unit]: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
            Ok(Bucket { credits, last_us: last_us as u64, per_token: unit as u64 })
        });
        let spec = Spec::new(before::QUOTA, 0).unwrap();
        let (bucket, answer) = Bucket::step(row.optional().unwrap(), &spec, now_us(), exactly(1));
        if let Some(bucket) = bucket {
            let fill_us = NUMBERS[6] * NUMBERS[3];
            let write = "INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (id) DO UPDATE SET credits = excluded.credits, last_us = excluded.last_us,
         unit = excluded.unit, full_us = excluded.full_us";
            let (last_us, unit) = (bucket.last_us as i64, bucket.per_token as i64);
            transaction
                .execute(write, params![KEY, bucket.credits, last_us, unit, last_us + fill_us])
                .unwrap();
        }
        transaction.commit().unwrap();
        answer.granted == 1
    }

    async fn delete_counts(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            self.other.execute("DELETE FROM tollgate_counts WHERE id = ?1", [key]).unwrap();
        }
    }
}

impl Sql for File {
    const LOCK: &str = "BEGIN IMMEDIATE";
    const TOO_LONG: (Duration, &str) = (Duration::from_secs(1), "locked");
    const MISSING: (&str, &str) = ("DROP TABLE tollgate_buckets", "no such table: tollgate_buckets");

    async fn run(&mut self, sql: &str) {
        self.other.execute_batch(sql).unwrap();
    }

    /// Lets the call go on. A file does not tell whether its store waits for the lock.
    async fn wait_for_a_lock(&mut self) {
        tokio::task::yield_now().await;
    }

    async fn writes(&mut self) -> String {
        self.other.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap().to_string()
    }

    async fn migrate(&self) {
        self.store.migrate().await.unwrap();
    }

    async fn clean_up(&self, time: Duration) -> u64 {
        self.store.clean_up(time).await.unwrap()
    }
}

/// A file with the table of intervals.
pub(crate) struct Intervals {
    requester: TokenRequester<SqliteStore>,
    other: Connection,
    _folder: TempDir,
}

impl Table for Intervals {
    type Store = SqliteStore;

    async fn start() -> Option<Intervals> {
        let File { store, other, _folder, .. } = File::open();
        let requester = TokenRequester::new(store);
        requester.migrate().await.unwrap();
        requester.migrate().await.unwrap();
        Some(Intervals { requester, other, _folder })
    }

    fn requester(&self) -> &TokenRequester<SqliteStore> {
        &self.requester
    }

    async fn row(&mut self, id: &str) -> Interval {
        let select =
            "SELECT available, capacity, refill_seconds, last_refill_at FROM token_buckets WHERE id = ?1";
        let row = self.other.query_row(select, [id], |row| {
            let (available, capacity, refill_seconds) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Interval { available, capacity, refill_seconds, last_us: row.get(3)? })
        });
        row.unwrap()
    }

    async fn put(&mut self, id: &str, row: Interval) {
        let put = "INSERT OR REPLACE INTO token_buckets VALUES (?1, ?2, ?3, ?4, ?5)";
        let Interval { available, capacity, refill_seconds, last_us } = row;
        self.other.execute(put, params![id, available, capacity, refill_seconds, last_us]).unwrap();
    }
}
