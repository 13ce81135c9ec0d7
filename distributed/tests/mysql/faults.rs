//! Servers that refuse, hang, end, and come back.

use std::time::{Duration, Instant};

use mysql_async::Pool;
use mysql_async::prelude::Queryable;
use tokio::time::timeout;
use tollgate_distributed::{MySqlOptions, MySqlStore, Op, Store, StoreErrorKind};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};

use crate::sql::world::{World, ask, exactly, failure, heals, now_us, slow, take};
use crate::world::{Server, client};

#[tokio::test]
async fn a_server_that_is_not_there_refuses_and_a_wrong_address_is_permanent() {
    let port = tollgate_test_servers::program::free_port().unwrap();
    let store = MySqlStore::connect(&format!("mysql://test@127.0.0.1:{port}/tests")).unwrap();
    assert_eq!(failure(&store).await.0, StoreErrorKind::Refused);
    assert_eq!(MySqlStore::connect("postgres://nowhere").err().unwrap().kind(), StoreErrorKind::Permanent);
}

#[tokio::test]
async fn a_missing_table_account_or_database_is_permanent() {
    if !mariadb_is_installed() {
        return;
    }
    let server = MariaDb::start(&[]).unwrap();
    let missing = MySqlStore::connect(&server.url()).unwrap();
    let (permanent, text) = failure(&missing).await;
    assert_eq!(permanent, StoreErrorKind::Permanent);
    assert!(text.contains("tollgate_acquire_1"), "{text}");
    missing.migrate().await.unwrap();
    take(&missing, b"key").await.unwrap();
    client(&server).await.query_drop("CREATE USER guest@'127.0.0.1'").await.unwrap();
    for (from, to) in [("test@", "nobody@"), ("test@", "guest@"), ("/tests", "/nothing")] {
        let (permanent, text) = failure(&MySqlStore::connect(&server.url().replace(from, to)).unwrap()).await;
        assert_eq!(permanent, StoreErrorKind::Permanent, "{text}");
    }
}

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
    let Some(server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let pool = Pool::new(server.opts().client_found_rows(true));
    let (permanent, text) = failure(&MySqlStore::with_pool(pool)).await;
    assert_eq!(permanent, StoreErrorKind::Permanent);
    assert!(text.contains("client_found_rows"), "{text}");
}

#[tokio::test]
async fn a_lock_that_is_not_released_refuses_and_takes_nothing() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let mut ops: Vec<_> = [b"a", b"b"].iter().map(|key| Op::new(*key, slow(), exactly(1))).collect();
    server.store.acquire(&mut ops).await.unwrap();
    let rows = server.rows().await;
    server
        .other
        .query_drop("START TRANSACTION; UPDATE tollgate_buckets SET unit = unit + 1 WHERE id = 'b'")
        .await
        .unwrap();
    let begin = Instant::now();
    let error = server.store.acquire(&mut ops).await.expect_err("a locked row was written");
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("1205"), "{error}");
    // The batch is sent once more.
    assert!(begin.elapsed() > Duration::from_millis(1_500), "{:?}", begin.elapsed());
    server.other.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(server.rows().await, rows, "a part of a batch was stored");
    // No connection has the rest of a transaction.
    for _ in 0..8 {
        take(&server.store, b"c").await.unwrap();
    }
    let look = ask(&server.store, b"a", slow(), exactly(0)).await;
    assert_eq!(slow().tokens(look.credits), 999);
}

#[tokio::test]
async fn a_deadlock_is_sent_once_more() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let mut ops: Vec<_> = [b"a", b"b"].iter().map(|key| Op::new(*key, slow(), exactly(1))).collect();
    server.store.acquire(&mut ops).await.unwrap();
    // Another session locks in the opposite order. It has changed more rows, so the call is the
    // victim.
    let rows: Vec<String> = (0..100).map(|row| format!("('z{row}',0,0,1,0)")).collect();
    let lock = |key: &str| format!("SELECT credits FROM tollgate_buckets WHERE id = '{key}' FOR UPDATE");
    let begin =
        format!("START TRANSACTION; INSERT INTO tollgate_buckets VALUES {}; {}", rows.join(","), lock("b"));
    server.other.query_drop(begin).await.unwrap();
    let mut observer = client(&server.server).await;
    let other = async {
        let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
        while observer.query_first::<(String, u64), _>(waits).await.unwrap().unwrap().1 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.other.query_drop(lock("a")).await.unwrap();
        server.other.query_drop("COMMIT").await.unwrap();
    };
    let (result, ()) = tokio::join!(server.store.acquire(&mut ops), other);
    result.unwrap();
    let deadlocks: Option<(String, u64)> =
        server.other.query_first("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").await.unwrap();
    assert_eq!(deadlocks.unwrap().1, 1);
    assert!(ops.iter().all(|op| op.answer.granted == 1 && slow().tokens(op.answer.credits) == 998));
}

#[tokio::test]
async fn a_server_that_is_killed_comes_back() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    take(&server.store, b"key").await.unwrap();
    server.server.process().kill();
    let mut last = StoreErrorKind::Unknown;
    for _ in 0..8 {
        last = failure(&server.store).await.0;
        assert_ne!(last, StoreErrorKind::Permanent);
    }
    assert_eq!(last, StoreErrorKind::Refused);
    server.server.restart().unwrap();
    assert_eq!(heals(&server.store).await.granted, 1);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_by_callers_and_by_the_store() {
    let options = MySqlOptions {
        connections: 1,
        connect_timeout: Duration::from_millis(300),
        call_timeout: Duration::from_millis(300),
    };
    let Some(mut server) = Server::start(&[], options).await else { return };
    take(&server.store, b"key").await.unwrap();
    server.server.process().freeze().unwrap();
    // A call that was under way may still be answered.
    while timeout(Duration::from_millis(50), take(&server.store, b"key")).await.is_ok() {}
    // Each caller gives up, and the store still gives the connection up. Only the first call was
    // sent.
    for _ in 0..2 {
        timeout(Duration::from_millis(50), take(&server.store, b"key")).await.expect_err("a frozen server");
    }
    let (refused, text) = failure(&server.store).await;
    assert_eq!(refused, StoreErrorKind::Refused, "{text}");
    assert!(text.contains("before the call was sent"), "{text}");
    assert_eq!(failure(&server.store).await.0, StoreErrorKind::Refused, "a new connection");
    server.server.process().thaw().unwrap();
    assert_eq!(heals(&server.store).await.granted, 1);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_for_another_one() {
    let options = MySqlOptions { connections: 1, ..MySqlOptions::default() };
    let Some(mut server) = Server::start(&[], options).await else { return };
    let guest = "CREATE USER guest@'127.0.0.1'; GRANT SELECT, INSERT, UPDATE, EXECUTE ON tests.* TO guest@'127.0.0.1'";
    server.other.query_drop(guest).await.unwrap();
    let guest = MySqlStore::connect(&server.server.url().replace("test@", "guest@")).unwrap();
    take(&guest, b"key").await.unwrap();
    let connections = "SHOW GLOBAL STATUS LIKE 'Connections'";
    server.other.query_drop("SET GLOBAL read_only = 1").await.unwrap();
    let before: Option<(String, u64)> = server.other.query_first(connections).await.unwrap();
    for _ in 0..6 {
        let (refused, text) = failure(&guest).await;
        assert_eq!(refused, StoreErrorKind::Refused, "{text}");
        assert!(text.contains("--read-only"), "{text}");
    }
    let after: Option<(String, u64)> = server.other.query_first(connections).await.unwrap();
    assert!(after.unwrap().1 >= before.unwrap().1 + 5, "the connections were kept");
    server.other.query_drop("SET GLOBAL read_only = 0").await.unwrap();
    assert_eq!(heals(&guest).await.granted, 1);
}

#[tokio::test]
async fn numbers_that_are_no_bucket_cannot_be_stored() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let most = 1_i64 << 53;
    for (credits, last_us, unit) in
        [(most, 0, 1), (-most, 0, 1), (0, -1, 1), (0, i64::MAX, 1), (0, 0, 0), (0, 0, most)]
    {
        let insert =
            format!("INSERT INTO tollgate_buckets VALUES ('wrong', {credits}, {last_us}, {unit}, 0)");
        assert!(server.other.query_drop(insert).await.is_err());
    }
    // Numbers as another program might have written them.
    let now_us = now_us() as i64;
    let forged = |credits: i64, last_us: i64, unit: i64| {
        format!(
            "SET check_constraint_checks = 0; REPLACE INTO tollgate_buckets VALUES ('key', {credits}, {last_us}, {unit}, 0)"
        )
    };
    for (credits, last_us, unit) in [(i64::MAX, i64::MAX, 0), (i64::MIN, now_us, 1), (0, now_us, 0)] {
        server.other.query_drop(forged(credits, last_us, unit)).await.unwrap();
        let (permanent, text) = failure(&server.store).await;
        assert_eq!(permanent, StoreErrorKind::Permanent, "{text}");
    }
    take(&server.store, b"other").await.unwrap();
    // A time that no bucket has is that of a clock that went back: the next call stores its own.
    server.other.query_drop(forged(0, i64::MAX, 1)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(take(&server.store, b"key").await.unwrap().granted, 0);
    }
}
