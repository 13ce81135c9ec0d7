//! Rows that another session locks: denials go on, races are decided by the row that won, and a
//! call that was not decided takes nothing.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Quota;
use tollgate_distributed::{Op, Spec, Store, StoreErrorKind};

use crate::engine::{Options, PATIENT, Sql, ask, exactly, failure, now_us, slow, take};

/// A bucket of ten tokens that earns none while a test runs.
fn ten() -> Spec {
    Spec::new(Quota::per_day(1).burst(10), 0).unwrap()
}

/// The lock of another session does not stop a denial.
pub(crate) async fn a_call_that_changes_nothing_writes_nothing<E: Sql>(mut engine: E) {
    let store = engine.connect(PATIENT);
    assert_eq!(ask(&store, b"key", ten(), exactly(10)).await.granted, 10);
    let before = engine.writes().await;
    engine.run(E::LOCK).await;
    for amount in [exactly(1), exactly(0)] {
        assert_eq!(ask(&store, b"key", ten(), amount).await.granted, 0);
    }
    let look = ask(&store, b"new", ten(), exactly(0)).await;
    assert_eq!(look.credits, ten().capacity() as i64);
    engine.run("ROLLBACK").await;
    ask(&store, b"new", ten(), exactly(11)).await;
    assert_eq!(engine.writes().await, before);
    assert_eq!(engine.rows().await.len(), 1);
}

/// Another session takes all tokens, or inserts the row, and commits while the call waits.
pub(crate) async fn a_call_that_lost_a_race_is_denied_by_the_row_that_won(mut engine: impl Sql) {
    ask(engine.store(), b"key", ten(), exactly(1)).await;
    let update = "UPDATE tollgate_buckets SET credits = 5";
    let insert =
        "INSERT INTO tollgate_buckets SELECT 'new', credits, last_us, unit, full_us FROM tollgate_buckets";
    for (key, change) in [(b"key", update), (b"new", insert)] {
        engine.run(&format!("BEGIN; {change}")).await;
        let store = engine.connect(PATIENT);
        let call = tokio::spawn(async move { ask(&store, key, ten(), exactly(5)).await });
        engine.wait_for_a_lock().await;
        let committed = now_us();
        engine.run("COMMIT").await;
        let answer = call.await.unwrap();
        assert!(answer.now_us >= committed, "the clock was read before the lock was waited for");
        assert_eq!(answer.granted, 0);
        assert!((5..ten().per_token() as i64).contains(&answer.credits), "{answer:?}");
    }
    let rows = engine.rows().await;
    assert!(rows.len() == 2 && rows.values().all(|row| row.credits == 5), "{rows:?}");
}

pub(crate) async fn a_call_whose_caller_has_gone_is_not_sent<E: Sql>(mut engine: E) {
    let store = Arc::new(engine.connect(Options { connections: 1, ..PATIENT }));
    ask(&*store, b"first", ten(), exactly(1)).await;
    engine.run(E::LOCK).await;
    let waiting = Arc::clone(&store);
    let first = tokio::spawn(async move { ask(&*waiting, b"first", ten(), exactly(1)).await });
    engine.wait_for_a_lock().await;
    // The first call waits for a lock on the only connection, and the second call waits behind it.
    let gone = ask(&*store, b"gone", ten(), exactly(1));
    tokio::time::timeout(Duration::from_millis(50), gone).await.expect_err("a connection that waits");
    engine.run("COMMIT").await;
    assert_eq!(first.await.unwrap().granted, 1);
    assert_eq!(ask(&*store, b"last", ten(), exactly(1)).await.granted, 1);
    let keys: Vec<Vec<u8>> = engine.rows().await.into_keys().collect();
    assert_eq!(keys, [b"first".as_slice(), b"last"]);
}

pub(crate) async fn a_lock_that_is_not_released_refuses_and_takes_nothing<E: Sql>(mut engine: E) {
    let store = engine.connect(Options { connections: 2, patience: E::TOO_LONG.0 });
    let mut ops: Vec<_> = [b"a", b"b"].iter().map(|key| Op::new(*key, slow(), exactly(1))).collect();
    engine.store().acquire(&mut ops).await.unwrap();
    let rows = engine.rows().await;
    engine.run(E::LOCK).await;
    let error = store.acquire(&mut ops).await.expect_err("a locked row was written");
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains(E::TOO_LONG.1), "{error}");
    engine.run("ROLLBACK").await;
    assert_eq!(engine.rows().await, rows, "a part of a batch was stored");
    // No connection has the rest of a transaction.
    for _ in 0..8 {
        take(&store, b"c").await.unwrap();
    }
    let look = ask(&store, b"a", slow(), exactly(0)).await;
    assert_eq!(slow().tokens(look.credits), 999);
}

pub(crate) async fn a_part_that_is_missing_is_permanent_until_it_is_made<E: Sql>(mut engine: E) {
    let (statement, name) = E::MISSING;
    engine.run(statement).await;
    let (permanent, text) = failure(engine.store()).await;
    assert_eq!(permanent, StoreErrorKind::Permanent);
    assert!(text.contains(name), "{text}");
    engine.migrate().await;
    assert_eq!(take(engine.store(), b"key").await.unwrap().granted, 1);
}
