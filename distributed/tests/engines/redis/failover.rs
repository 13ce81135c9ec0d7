//! A failover to another server behind the same address.

use std::time::Duration;

use tollgate_distributed::{RedisStore, StoreErrorKind};
use tollgate_test_servers::net::{Cut, Proxy};
use tollgate_test_servers::program::wait_until;
use tollgate_test_servers::redis::{Pair, redis_is_installed};
use tollgate_test_servers::wire::Reply;

use super::engine::{ONE, ask, counted, heal, taken};

async fn behind(proxy: &Proxy) -> RedisStore {
    RedisStore::connect(&format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap()
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_costs_one_call() {
    if !redis_is_installed() {
        return;
    }
    let pair = Pair::start(&[]).unwrap();
    let proxy = Proxy::start(pair.primary.port()).await.unwrap();
    let store = behind(&proxy).await;
    ask(&store, "key", counted(100), ONE).await.unwrap();
    let follows =
        || pair.replica.command(&["EXISTS", "tollgate:key"]).is_ok_and(|found| found == Reply::Number(1));
    assert!(wait_until(Duration::from_secs(5), follows));
    // The open connection always leads to the old primary.
    pair.promote().unwrap();
    proxy.switch(pair.replica.port());
    pair.primary.command(&["REPLICAOF", "127.0.0.1", &pair.replica.port().to_string()]).unwrap();
    let refused = ask(&store, "key", counted(100), ONE).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("read only replica"), "{refused}");
    ask(&store, "key", counted(100), ONE).await.unwrap();
    assert_eq!(proxy.accepted(), 2);
    assert_eq!(taken(&store, "key", counted(100)).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_refuses_until_it_is_promoted_and_the_first_call_then_succeeds() {
    if !redis_is_installed() {
        return;
    }
    let pair = Pair::start(&[]).unwrap();
    let proxy = Proxy::start(pair.primary.port()).await.unwrap();
    let store = behind(&proxy).await;
    ask(&store, "key", counted(100), ONE).await.unwrap();
    proxy.switch(pair.replica.port());
    proxy.cut(Cut::Reset);
    for call in 0..20 {
        let error = ask(&store, "key", counted(100), ONE).await.unwrap_err();
        // The first call may have used the old connection.
        assert!(call == 0 || error.kind() == StoreErrorKind::Refused, "{error}");
    }
    pair.promote().unwrap();
    let (failed, _) = heal(&store, "key", counted(100)).await;
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_once_make_one_connection() {
    if !redis_is_installed() {
        return;
    }
    let pair = Pair::start(&[]).unwrap();
    let proxy = Proxy::start(pair.primary.port()).await.unwrap();
    let store = behind(&proxy).await;
    ask(&store, "key", counted(100), ONE).await.unwrap();
    proxy.cut(Cut::Reset);
    heal(&store, "key", counted(100)).await;
    let before = proxy.accepted();
    proxy.cut(Cut::Reset);
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { heal(&store, "key", counted(100)).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(proxy.accepted() - before, 1);
}
