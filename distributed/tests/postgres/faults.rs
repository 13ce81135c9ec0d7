//! Servers that refuse, hang, end, and come back.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use tollgate_distributed::{Op, PostgresOptions, PostgresStore, Store, StoreErrorKind};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};

use crate::sql::world::{ask, exactly, failure, heals, slow, take};
use crate::world::{Server, client, store};

#[tokio::test]
async fn a_server_that_is_not_there_refuses_and_a_wrong_address_is_permanent() {
    let port = tollgate_test_servers::program::free_port().unwrap();
    let store = PostgresStore::connect(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).unwrap();
    assert_eq!(failure(&store).await.0, StoreErrorKind::Refused);
    let wrong = PostgresStore::connect("postgres://a:b:c@nowhere:port/").err().unwrap();
    assert_eq!(wrong.kind(), StoreErrorKind::Permanent);
}

#[tokio::test]
async fn a_connection_that_was_being_made_by_another_runtime_is_made_anew() {
    let Some(mut server) = Server::start(PostgresOptions::default()).await else { return };
    let store = store(&server.server, PostgresOptions { connections: 1, ..PostgresOptions::default() });
    server.server.process().freeze().unwrap();
    let short = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let call = async { timeout(Duration::from_millis(20), failure(&store)).await };
        assert!(runtime.block_on(call).is_err(), "an answer of a frozen server");
    };
    std::thread::scope(|scope| scope.spawn(short).join()).unwrap();
    server.server.process().thaw().unwrap();
    take(&store, b"key").await.unwrap();
}

#[tokio::test]
async fn a_missing_table_role_or_database_is_permanent() {
    if !postgres_is_installed() {
        return;
    }
    let server = Postgres::start(&[]).unwrap();
    let missing = PostgresStore::connect(&server.url()).unwrap();
    let (permanent, text) = failure(&missing).await;
    assert_eq!(permanent, StoreErrorKind::Permanent);
    assert!(text.contains("tollgate_acquire_1"), "{text}");
    missing.migrate().await.unwrap();
    take(&missing, b"key").await.unwrap();
    let other = client(&server).await;
    other.batch_execute("CREATE ROLE guest LOGIN").await.unwrap();
    for (from, to) in [("/postgres@", "/nobody@"), ("/postgres@", "/guest@"), ("/postgres?", "/nothing?")] {
        let url = format!("{}?", server.url()).replace(from, to);
        let (permanent, text) = failure(&PostgresStore::connect(&url).unwrap()).await;
        assert_eq!(permanent, StoreErrorKind::Permanent, "{text}");
    }
}

#[tokio::test]
async fn a_lock_that_is_not_released_refuses_and_takes_nothing() {
    let options = PostgresOptions { lock_timeout: Duration::from_millis(50), ..PostgresOptions::default() };
    let Some(server) = Server::start(options).await else { return };
    take(&server.store, b"key").await.unwrap();
    server.other.batch_execute("BEGIN; SELECT FROM tollgate_buckets FOR UPDATE").await.unwrap();
    let (refused, text) = failure(&server.store).await;
    assert_eq!(refused, StoreErrorKind::Refused);
    assert!(text.contains("lock timeout"), "{text}");
    server.other.batch_execute("ROLLBACK").await.unwrap();
    let look = ask(&server.store, b"key", slow(), exactly(0)).await;
    assert_eq!(slow().tokens(look.credits), 999);
}

#[tokio::test]
async fn a_deadlock_is_sent_once_more() {
    let long = Duration::from_secs(20);
    let options =
        PostgresOptions { lock_timeout: long, statement_timeout: long, ..PostgresOptions::default() };
    let Some(server) = Server::start(options).await else { return };
    let lock = |key: &str| format!("SELECT FROM tollgate_buckets WHERE id = '{key}' FOR UPDATE");
    let mut ops: Vec<_> = [b"a", b"b"].iter().map(|key| Op::new(*key, slow(), exactly(1))).collect();
    server.store.acquire(&mut ops).await.unwrap();
    // Another session holds a row that the call waits for, and then waits for a lock of the table.
    // The call looks for a deadlock first: after a second, and the other session after ten. Locks
    // of a table are granted in order, so the second attempt waits until the other session has
    // ended.
    let begin = format!("SET deadlock_timeout = '10s'; BEGIN; {}", lock("b"));
    server.other.batch_execute(&begin).await.unwrap();
    let other = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while server.other.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.other.batch_execute("LOCK TABLE tollgate_buckets; COMMIT").await.unwrap();
    };
    let (result, ()) = tokio::join!(server.store.acquire(&mut ops), other);
    result.unwrap();
    assert!(server.server.log().contains("deadlock detected"));
    assert!(ops.iter().all(|op| op.answer.granted == 1 && slow().tokens(op.answer.credits) == 998));
}

#[tokio::test]
async fn a_server_that_is_killed_comes_back() {
    let Some(mut server) = Server::start(PostgresOptions::default()).await else { return };
    take(&server.store, b"key").await.unwrap();
    server.server.process().kill();
    let kinds =
        [failure(&server.store).await.0, failure(&server.store).await.0, failure(&server.store).await.0];
    assert!(!kinds.contains(&StoreErrorKind::Permanent) && kinds[2] == StoreErrorKind::Refused, "{kinds:?}");
    server.server.restart().unwrap();
    assert_eq!(heals(&server.store).await.granted, 1);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_by_callers_and_by_the_store() {
    let options = PostgresOptions {
        statement_timeout: Duration::from_millis(100),
        connect_timeout: Duration::from_millis(300),
        connections: 1,
        ..PostgresOptions::default()
    };
    let Some(mut server) = Server::start(options).await else { return };
    take(&server.store, b"key").await.unwrap();
    server.server.process().freeze().unwrap();
    // A call that was under way may still be answered.
    while timeout(Duration::from_millis(50), take(&server.store, b"key")).await.is_ok() {}
    // Each caller gives up, and the store still gives the connection up.
    for _ in 0..2 {
        timeout(Duration::from_millis(50), take(&server.store, b"key")).await.expect_err("a frozen server");
    }
    assert_eq!(failure(&server.store).await.0, StoreErrorKind::Unknown);
    assert_eq!(failure(&server.store).await.0, StoreErrorKind::Refused, "a new connection");
    server.server.process().thaw().unwrap();
    assert_eq!(heals(&server.store).await.granted, 1);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_for_another_one() {
    let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    let Some(server) = Server::start(options).await else { return };
    take(&server.store, b"key").await.unwrap();
    let read_only = |on: &str| format!("ALTER ROLE postgres SET default_transaction_read_only = {on}");
    server.other.batch_execute(&read_only("on")).await.unwrap();
    server
        .other
        .batch_execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        )
        .await
        .unwrap();
    let begin = Instant::now();
    while !failure(&server.store).await.1.contains("read-only") {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(failure(&server.store).await.0, StoreErrorKind::Refused);
    // A session that was made before would stay read-only.
    server
        .other
        .batch_execute(&format!("SET default_transaction_read_only = off; {}", read_only("off")))
        .await
        .unwrap();
    assert_eq!(heals(&server.store).await.granted, 1);
}

#[tokio::test]
async fn a_connection_of_the_caller_is_not_made_anew() {
    let Some(server) = Server::start(PostgresOptions::default()).await else { return };
    let store = PostgresStore::with_client(client(&server.server).await);
    assert_eq!(take(&store, b"key").await.unwrap().granted, 1);
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    server.other.query_one(kill, &[]).await.unwrap();
    let begin = Instant::now();
    while failure(&store).await.0 != StoreErrorKind::Permanent {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn numbers_that_are_no_bucket_cannot_be_stored() {
    let Some(server) = Server::start(PostgresOptions::default()).await else { return };
    let most = 1_i64 << 53;
    for (credits, last_us, unit) in
        [(most, 0, 1), (-most, 0, 1), (0, -1, 1), (0, i64::MAX, 1), (0, 0, 0), (0, 0, most)]
    {
        let insert = "INSERT INTO tollgate_buckets VALUES ('wrong', $1, $2, $3, 0)";
        assert!(server.other.execute(insert, &[&credits, &last_us, &unit]).await.is_err());
    }
    // A table without its constraints, as another program might have made it.
    let drop = "DO $$ DECLARE c record; BEGIN
        FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'tollgate_buckets'::regclass AND contype = 'c'
        LOOP EXECUTE format('ALTER TABLE tollgate_buckets DROP CONSTRAINT %I', c.conname); END LOOP; END $$;
        INSERT INTO tollgate_buckets VALUES ('key', 9223372036854775807, 9223372036854775807, 0, 0)";
    server.other.batch_execute(drop).await.unwrap();
    let store = store(&server.server, PostgresOptions::default());
    assert_eq!(failure(&store).await.0, StoreErrorKind::Permanent);
}
