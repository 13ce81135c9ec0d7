//! Wrong rows, wrong files, full disks, and locks of other processes.

use std::fs;

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;
use tollgate::Quota;
use tollgate_distributed::{Amount, Op, Spec, SqliteStore, Store, StoreError, StoreErrorKind};

use crate::sql::world::{World, ask, exactly};
use crate::world::File;

fn spec() -> Spec {
    Spec::new(Quota::per_minute(60).burst(100), 0).unwrap()
}

async fn refused(store: &SqliteStore, key: &[u8], amount: Amount) -> StoreError {
    let mut ops = [Op::new(key, spec(), amount)];
    store.acquire(&mut ops).await.expect_err("a call was decided")
}

#[tokio::test]
async fn a_row_that_is_no_bucket_fails_its_call_and_names_the_key() {
    let most = 1_i64 << 53;
    let wrong = [
        (most, 0, 1),
        (-most, 0, 1),
        (i64::MAX, 0, 1),
        (i64::MIN, 0, 1),
        (0, -1, 1),
        (0, i64::MIN, 1),
        (0, i64::MAX, 1),
        (0, 0, 0),
        (0, 0, -1),
        (0, 0, most),
        (0, 0, i64::MAX),
    ];
    for (credits, last_us, unit) in wrong {
        let file = File::open();
        let insert = "INSERT INTO tollgate_buckets VALUES (?1, ?2, ?3, ?4, 0)";
        file.other.execute(insert, rusqlite::params![b"wr\"ong\xff", credits, last_us, unit]).unwrap();
        for amount in [exactly(0), exactly(1), Amount { spent: 1, ..Amount::default() }] {
            let mut ops = [Op::new(b"sound", spec(), exactly(1)), Op::new(b"wr\"ong\xff", spec(), amount)];
            let (result, other) =
                tokio::join!(file.store.acquire(&mut ops), ask(&file.store, b"other", spec(), exactly(1)));
            let error = result.expect_err("a wrong row was decided");
            assert_eq!(error.kind(), StoreErrorKind::Permanent);
            assert!(error.to_string().contains(r#"the row of key "wr\"ong\xff" is no bucket"#), "{error}");
            assert_eq!(other.granted, 1, "a call beside it");
        }
        let mut file = file;
        assert!(!file.rows().await.contains_key(b"sound".as_slice()), "a failed call took a token");
    }
}

#[tokio::test]
async fn a_lock_of_another_process_stops_grants_and_no_denial() {
    let mut file = File::open();
    ask(&file.store, b"empty", spec(), exactly(100)).await;
    let rows = file.rows().await;
    file.other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(ask(&file.store, b"empty", spec(), exactly(50)).await.granted, 0);
    assert_eq!(ask(&file.store, b"new", spec(), exactly(0)).await.credits, spec().capacity() as i64);
    assert_eq!(refused(&file.store, b"new", exactly(1)).await.kind(), StoreErrorKind::Refused);
    file.other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(file.rows().await, rows);
    assert_eq!(ask(&file.store, b"new", spec(), exactly(1)).await.granted, 1);
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
