//! Deadlocks, servers that take no writes, and connections of the caller.

use std::time::{Duration, Instant};

use tollgate_distributed::{Op, PostgresOptions, PostgresStore, Store, StoreErrorKind};

use super::engine::{Postgres, client, options};
use crate::engine::{Engine, PATIENT, Server, Sql, exactly, failure, heals, slow, take};
use crate::suite::walk;

#[tokio::test]
async fn a_deadlock_is_sent_once_more() {
    let Some(mut server) = Postgres::start().await else { return };
    let lock = |key: &str| format!("SELECT FROM tollgate_buckets WHERE id = '{key}' FOR UPDATE");
    let mut ops: Vec<_> = [b"a", b"b"].iter().map(|key| Op::new(*key, slow(), exactly(1))).collect();
    server.store.acquire(&mut ops).await.unwrap();
    // Another session holds a row that the call waits for, and then waits for a lock of the table.
    // The call looks for a deadlock first: after a second, and the other session after ten. Locks
    // of a table are granted in order, so the second attempt waits until the other session has
    // ended.
    let begin = format!("SET deadlock_timeout = '10s'; BEGIN; {}", lock("b"));
    server.run(&begin).await;
    let store = server.connect(PATIENT);
    let other = async {
        server.wait_for_a_lock().await;
        server.run("LOCK TABLE tollgate_buckets; COMMIT").await;
    };
    let (result, ()) = tokio::join!(store.acquire(&mut ops), other);
    result.unwrap();
    assert!(server.server.log().contains("deadlock detected"));
    assert!(ops.iter().all(|op| op.answer.granted == 1 && slow().tokens(op.answer.credits) == 998));
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_for_another_one() {
    let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    let Some(mut server) = Postgres::start_with(options).await else { return };
    take(&server.store, b"key").await.unwrap();
    let read_only = |on: &str| format!("ALTER ROLE postgres SET default_transaction_read_only = {on}");
    server.run(&read_only("on")).await;
    server.end_sessions().await;
    let begin = Instant::now();
    while !failure(&server.store).await.1.contains("read-only") {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(failure(&server.store).await.0, StoreErrorKind::Refused);
    // A session that was made before would stay read-only.
    server.run(&format!("SET default_transaction_read_only = off; {}", read_only("off"))).await;
    assert_eq!(heals(&server.store).await.granted, 1);
}

#[tokio::test]
async fn a_connection_of_the_caller_is_not_made_anew() {
    let Some(mut server) = Postgres::start().await else { return };
    let store = PostgresStore::with_client(client(&server.server).await);
    assert_eq!(take(&store, b"key").await.unwrap().granted, 1);
    server.end_sessions().await;
    let begin = Instant::now();
    while failure(&store).await.0 != StoreErrorKind::Permanent {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_connection_of_the_caller_keeps_the_law() {
    let unlogged = PostgresOptions { unlogged: true, ..options(PATIENT) };
    let Some(mut server) = Postgres::start_with(unlogged).await else { return };
    let store = PostgresStore::with_client(client(&server.server).await);
    walk::walk(&mut server, &store, 2_000).await;
    let unlogged = "SELECT relpersistence = 'u' FROM pg_class WHERE relname = 'tollgate_buckets'";
    assert!(server.other.query_one(unlogged, &[]).await.unwrap().get::<_, bool>(0));
}
