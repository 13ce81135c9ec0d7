//! Wrong settings, deadlocks, servers that take no writes, and a row from another time.

use mysql_async::Pool;
use tollgate_distributed::{MySqlStore, Op, Store, StoreErrorKind};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};

use super::engine::MySql;
use crate::engine::{Engine, PATIENT, Rows, Sql, Stored, exactly, failure, heals, slow, take};

#[tokio::test]
async fn a_clock_of_a_statements_begin_and_a_client_that_counts_found_rows_are_refused() {
    if !mariadb_is_installed() {
        return;
    }
    let server = MariaDb::start(&["--sysdate-is-now"]).unwrap();
    let (permanent, text) = failure(&MySqlStore::connect(&server.url()).unwrap()).await;
    assert_eq!(permanent, StoreErrorKind::Permanent);
    assert!(text.contains("--sysdate-is-now"), "{text}");
    drop(server);
    let Some(server) = MySql::start().await else { return };
    let pool = Pool::new(server.opts().client_found_rows(true));
    let (permanent, text) = failure(&MySqlStore::with_pool(pool)).await;
    assert_eq!(permanent, StoreErrorKind::Permanent);
    assert!(text.contains("client_found_rows"), "{text}");
}

#[tokio::test]
async fn a_deadlock_is_sent_once_more() {
    let Some(mut server) = MySql::start().await else { return };
    let mut ops: Vec<_> = [b"a", b"b"].iter().map(|key| Op::new(*key, slow(), exactly(1))).collect();
    server.store.acquire(&mut ops).await.unwrap();
    // Another session locks in the opposite order. It has changed more rows, so the call is the
    // victim.
    let rows: Vec<String> = (0..100).map(|row| format!("('z{row}',0,0,1,0)")).collect();
    let lock = |key: &str| format!("SELECT credits FROM tollgate_buckets WHERE id = '{key}' FOR UPDATE");
    let begin =
        format!("START TRANSACTION; INSERT INTO tollgate_buckets VALUES {}; {}", rows.join(","), lock("b"));
    server.run(&begin).await;
    let store = server.connect(PATIENT);
    let other = async {
        server.wait_for_a_lock().await;
        server.run(&lock("a")).await;
        server.run("COMMIT").await;
    };
    let (result, ()) = tokio::join!(store.acquire(&mut ops), other);
    result.unwrap();
    assert_eq!(server.status("Innodb_deadlocks").await, 1);
    assert!(ops.iter().all(|op| op.answer.granted == 1 && slow().tokens(op.answer.credits) == 998));
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_for_another_one() {
    let Some(mut server) = MySql::start().await else { return };
    let guest = "CREATE USER guest@'127.0.0.1'; GRANT SELECT, INSERT, UPDATE, EXECUTE ON tests.* TO guest@'127.0.0.1'";
    server.run(guest).await;
    let guest = MySqlStore::connect(&server.server.url().replace("test@", "guest@")).unwrap();
    take(&guest, b"key").await.unwrap();
    server.run("SET GLOBAL read_only = 1").await;
    let before = server.status("Connections").await;
    for _ in 0..6 {
        let (refused, text) = failure(&guest).await;
        assert_eq!(refused, StoreErrorKind::Refused, "{text}");
        assert!(text.contains("--read-only"), "{text}");
    }
    assert!(server.status("Connections").await >= before + 5, "the connections were kept");
    server.run("SET GLOBAL read_only = 0").await;
    assert_eq!(heals(&guest).await.granted, 1);
}

/// A time that no bucket has is that of a clock that went back: the next call stores its own.
#[tokio::test]
async fn a_time_that_no_bucket_has_is_that_of_a_clock_that_went_back() {
    let Some(mut server) = MySql::start().await else { return };
    let row = Stored { credits: 0, last_us: i64::MAX, unit: 1, full_us: 0 };
    server.lift_constraints(&[row]).await;
    server.put(&Rows::from([(b"key".to_vec(), row)])).await;
    for _ in 0..2 {
        assert_eq!(take(server.store(), b"key").await.unwrap().granted, 0);
    }
}
