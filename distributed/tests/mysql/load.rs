//! Contention and loss: several connections, opposite orders, ended sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use tollgate::Quota;
use tollgate_distributed::{MySqlOptions, MySqlStore, Spec};

use crate::sql::bound;
use crate::sql::world::{World, ask, exactly, now_us, setting};
use crate::world::{Server, store};

fn time() -> Duration {
    Duration::from_secs(setting("TOLLGATE_SECONDS", 2))
}

fn stores(server: &Server, count: usize, connections: usize) -> Vec<Arc<MySqlStore>> {
    let options = MySqlOptions { connections, ..MySqlOptions::default() };
    (0..count).map(|_| Arc::new(store(&server.server, options.clone()))).collect()
}

/// Returns a number of the server's status.
async fn status(server: &mut Server, name: &str) -> u64 {
    let row: Option<(String, u64)> =
        server.other.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).await.unwrap();
    row.unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_lost_or_made_under_load() {
    let Some(server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let mut run = bound::begin(&server.store, b"hot").await;
    run.add(bound::load(&stores(&server, 4, 2), 64, b"hot", time()).await);
    assert_eq!(run.failed, 0);
    bound::no_token_is_lost_or_made(&server.store, b"hot", &run).await;
    println!("{} calls, {} granted", run.calls, run.granted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_sessions_make_no_token_and_heal() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let stores = stores(&server, 4, 2);
    let mut run = bound::begin(&server.store, b"hot").await;
    let time = time().max(Duration::from_secs(3));
    let end = Instant::now() + time;
    let killer = async {
        let list =
            "SELECT id FROM information_schema.processlist WHERE user = 'test' AND id <> CONNECTION_ID()";
        let mut ended = 0;
        while Instant::now() + Duration::from_millis(700) < end {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let sessions: Vec<u64> = server.other.query(list).await.unwrap();
            for session in sessions {
                ended += u64::from(server.other.query_drop(format!("KILL {session}")).await.is_ok());
            }
        }
        ended
    };
    let (load, ended) = tokio::join!(bound::load(&stores, 16, b"hot", time), killer);
    run.add(load);
    assert!(ended >= 16 && run.failed > 0, "{ended} sessions were ended, {} calls failed", run.failed);
    for store in &stores {
        ask(&**store, b"cold", bound::contended(), exactly(1)).await;
    }
    let look = store(&server.server, MySqlOptions::default());
    bound::no_token_is_made(&look, b"hot", &run).await;
    println!("{} calls, {} failed, {} granted", run.calls, run.failed, run.granted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_opposite_orders_do_not_deadlock() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let keys: Vec<String> = (0..64).map(|key| format!("key {key}")).collect();
    let (sent, failed) = bound::batches(stores(&server, 8, 1), &keys, time()).await;
    println!("{sent} batches");
    assert!(sent > 20);
    assert_eq!((failed, status(&mut server, "Innodb_deadlocks").await), (0, 0));
    assert_eq!(server.rows().await.len(), 64);
}

#[tokio::test]
async fn a_call_that_changes_nothing_writes_nothing() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let spec = Spec::new(Quota::per_day(1).burst(10), 0).unwrap();
    assert_eq!(ask(&server.store, b"key", spec, exactly(10)).await.granted, 10);
    let mut before = Vec::new();
    for name in ["Handler_update", "Handler_write", "Innodb_row_lock_waits"] {
        before.push(status(&mut server, name).await);
    }
    // The lock of another session does not stop a denial.
    server.other.query_drop("START TRANSACTION").await.unwrap();
    server.other.query_drop("SELECT 1 FROM tollgate_buckets FOR UPDATE").await.unwrap();
    for amount in [exactly(1), exactly(0)] {
        assert_eq!(ask(&server.store, b"key", spec, amount).await.granted, 0);
    }
    server.other.query_drop("ROLLBACK").await.unwrap();
    ask(&server.store, b"new", spec, exactly(11)).await;
    let mut after = Vec::new();
    for name in ["Handler_update", "Handler_write", "Innodb_row_lock_waits"] {
        after.push(status(&mut server, name).await);
    }
    assert_eq!(before, after);
    assert_eq!(server.rows().await.len(), 1);
}

/// Waits until a session waits for a lock.
async fn wait_for_a_lock(server: &mut Server) {
    let end = Instant::now() + Duration::from_secs(5);
    while status(server, "Innodb_row_lock_current_waits").await == 0 {
        assert!(Instant::now() < end, "no session waits");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_lost_a_race_is_denied_by_the_row_that_won() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let spec = Spec::new(Quota::per_day(1).burst(10), 0).unwrap();
    ask(&server.store, b"key", spec, exactly(1)).await;
    // Another session takes all tokens, or inserts the row, and commits while the call waits.
    let update = "UPDATE tollgate_buckets SET credits = 5";
    let insert =
        "INSERT INTO tollgate_buckets SELECT 'new', credits, last_us, unit, full_us FROM tollgate_buckets";
    for (key, change) in [(b"key", update), (b"new", insert)] {
        server.other.query_drop(format!("START TRANSACTION; {change}")).await.unwrap();
        let store = store(&server.server, MySqlOptions::default());
        let call = tokio::spawn(async move { ask(&store, key, spec, exactly(5)).await });
        wait_for_a_lock(&mut server).await;
        let committed = now_us();
        server.other.query_drop("COMMIT").await.unwrap();
        let answer = call.await.unwrap();
        assert!(answer.now_us >= committed, "the clock was read before the lock was waited for");
        assert_eq!(answer.granted, 0);
        assert!((5..spec.per_token() as i64).contains(&answer.credits), "{answer:?}");
    }
    let rows = server.rows().await;
    assert!(rows.len() == 2 && rows.values().all(|row| row.credits == 5), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_caller_has_gone_is_not_sent() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let spec = Spec::new(Quota::per_day(1).burst(10), 0).unwrap();
    let store = stores(&server, 1, 1).remove(0);
    ask(&*store, b"first", spec, exactly(1)).await;
    server.other.query_drop("START TRANSACTION").await.unwrap();
    server.other.query_drop("SELECT 1 FROM tollgate_buckets FOR UPDATE").await.unwrap();
    let waiting = Arc::clone(&store);
    let first = tokio::spawn(async move { ask(&*waiting, b"first", spec, exactly(1)).await });
    wait_for_a_lock(&mut server).await;
    // The first call waits for a lock on the only connection, and the second call waits behind it.
    let gone = ask(&*store, b"gone", spec, exactly(1));
    tokio::time::timeout(Duration::from_millis(50), gone).await.expect_err("a connection that waits");
    server.other.query_drop("COMMIT").await.unwrap();
    assert_eq!(first.await.unwrap().granted, 1);
    assert_eq!(ask(&*store, b"last", spec, exactly(1)).await.granted, 1);
    let keys: Vec<Vec<u8>> = server.rows().await.into_keys().collect();
    assert_eq!(keys, [b"first".as_slice(), b"last"]);
}
