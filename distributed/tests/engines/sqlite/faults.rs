//! Wrong files and full disks.

use std::fs;

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;
use tollgate::Quota;
use tollgate_distributed::{Amount, Op, Spec, SqliteStore, Store, StoreError, StoreErrorKind};

use super::engine::File;
use crate::engine::{Engine, Rows, Stored, ask, exactly};

fn spec() -> Spec {
    Spec::new(Quota::per_minute(60).burst(100), 0).unwrap()
}

async fn refused(store: &SqliteStore, key: &[u8], amount: Amount) -> StoreError {
    let mut ops = [Op::new(key, spec(), amount)];
    store.acquire(&mut ops).await.expect_err("a call was decided")
}

#[tokio::test]
async fn a_time_that_no_bucket_has_fails_its_call() {
    let mut file = File::open();
    for last_us in [-1, i64::MIN, i64::MAX] {
        let row = Stored { credits: 0, last_us, unit: 1, full_us: 0 };
        file.put(&Rows::from([(b"key".to_vec(), row)])).await;
        let error = refused(&file.store, b"key", exactly(0)).await;
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{last_us}: {error}");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_heals() {
    let folder = TempDir::new().unwrap();
    let connection = Connection::open(folder.path().join("buckets")).unwrap();
    connection.query_row("PRAGMA max_page_count = 8", [], |_| Ok(())).unwrap();
    let store = SqliteStore::with_connection(connection).unwrap();
    let keys: Vec<Vec<u8>> = (0..200).map(|key| format!("{key:0200}").into_bytes()).collect();
    let mut ops: Vec<_> = keys.iter().map(|key| Op::new(key, spec(), exactly(1))).collect();
    let error = store.acquire(&mut ops).await.expect_err("200 rows on 8 pages");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    let look = ask(&store, &keys[0], spec(), exactly(0)).await;
    assert_eq!(look.credits, spec().capacity() as i64, "a refused call took a token");
    assert_eq!(ask(&store, &keys[0], spec(), exactly(1)).await.granted, 1);
}

/// Calls of several callers share a transaction. One that fails for good undoes it.
#[tokio::test]
async fn a_key_that_fails_for_good_fails_no_call_of_another_caller() {
    let file = File::open();
    let bad = "CREATE TRIGGER spoilt BEFORE INSERT ON tollgate_buckets WHEN NEW.id = CAST('bad' AS BLOB)
               BEGIN SELECT RAISE(ABORT, 'the key is spoilt'); END";
    file.other.execute_batch(bad).unwrap();
    // The first call waits for this lock, and the others wait for the first.
    file.other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ask_for = |key: &'static [u8]| {
        let store = file.store.clone();
        tokio::spawn(async move { store.acquire(&mut [Op::new(key, spec(), exactly(1))]).await })
    };
    let calls = [&b"first"[..], b"good", b"bad", b"other"].map(ask_for);
    tokio::task::yield_now().await;
    file.other.execute_batch("COMMIT").unwrap();
    let [_, good, bad, other] = calls;
    for call in [good, other] {
        call.await.unwrap().expect("its key is sound");
    }
    let error = bad.await.unwrap().expect_err("its key is spoilt");
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_or_read_only_or_without_its_table_is_permanent() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, "no database, but a text that is long enough for a header ".repeat(100)).unwrap();
    let kind = |result: Result<SqliteStore, StoreError>| result.expect_err("it was opened").kind();
    assert_eq!(kind(SqliteStore::open(&path)), StoreErrorKind::Permanent);
    assert_eq!(kind(SqliteStore::open(folder.path().join("no/such/folder"))), StoreErrorKind::Permanent);

    let file = File::open();
    let read_only = Connection::open_with_flags(&file.path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let store = SqliteStore::with_connection(read_only).unwrap();
    assert_eq!(ask(&store, b"key", spec(), exactly(0)).await.credits, spec().capacity() as i64);
    assert_eq!(refused(&store, b"key", exactly(1)).await.kind(), StoreErrorKind::Permanent);

    file.other.execute_batch("DROP TABLE tollgate_buckets").unwrap();
    let error = refused(&file.store, b"key", exactly(1)).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains("no such table: tollgate_buckets"), "{error}");
    file.store.migrate().await.unwrap();
    assert_eq!(ask(&file.store, b"key", spec(), exactly(1)).await.granted, 1);
}
