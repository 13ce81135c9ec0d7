//! Sentinels: the master is killed, and calls go on at the replica that they promote.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_distributed::{AnyStore, DistributedLimiter, OnOutage, RedisStore, Source, StoreErrorKind};
use tollgate_test_servers::redis::sentinels::Sentinels;
use tollgate_test_servers::redis::{Pair, redis_is_installed};

use super::engine::{ONE, ask, counted, taken};

/// A time far above that of a failover.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_the_limiter_goes_on_at_the_new_master() {
    if !redis_is_installed() {
        return;
    }
    let mut pair = Pair::start(&[]).unwrap();
    let mut sentinels = Sentinels::start(&pair).unwrap();
    let store = AnyStore::open(&sentinels.url()).unwrap();
    // A failover may take a minute, in which the bucket is to earn nothing.
    let quota = Quota::per_day(1).burst(1_000);
    let limiter = DistributedLimiter::<String, _>::builder(quota, store)
        .name("clients")
        .exact()
        .deadline(Duration::from_secs(2))
        .on_outage(OnOutage::Deny)
        .build()
        .unwrap();
    assert_eq!(limiter.ask("ada").await.unwrap().source(), Source::Store);
    pair.pause().unwrap();
    // One of three sentinels is silent: the others decide, and a connection does not wait for it.
    sentinels.nodes[0].process().freeze().unwrap();
    pair.primary.process().kill();
    let begin = Instant::now();
    let granted = loop {
        match limiter.ask("ada").await {
            Ok(granted) => break granted,
            Err(denied) => assert!(begin.elapsed() < PATIENCE, "{denied:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(granted.source(), Source::Store);
    let role = pair.replica.info("replication", "role").unwrap();
    assert_eq!(role, "master");
    // The tokens of before are known there.
    let known = RedisStore::builder().lazy(&pair.replica.url()).unwrap();
    let spec = tollgate_distributed::Spec::new(quota, 0).unwrap();
    assert!(taken(&known, "clients:ada", spec).await >= 2);
    sentinels.nodes[0].process().thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_a_password_of_their_own_and_know_masters_by_name() {
    if !redis_is_installed() {
        return;
    }
    let pair = Pair::start(&[]).unwrap();
    let sentinels = Sentinels::start(&pair).unwrap();
    for node in &sentinels.nodes {
        node.command(&["ACL", "SETUSER", "default", "resetpass", ">s/t"]).unwrap();
    }
    let url = sentinels.url();
    let at = |url: &str| RedisStore::builder().lazy(url).unwrap();
    let store = at(&format!("{url}?sentinel_password=s%2Ft"));
    ask(&store, "key", counted(100), ONE).await.unwrap();
    assert_eq!(taken(&store, "key", counted(100)).await, 1);
    for wrong in
        [url.clone(), format!("{url}?sentinel_password=other"), format!("{url}er?sentinel_password=s%2Ft")]
    {
        let error = ask(&at(&wrong), "key", counted(100), ONE).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{wrong}: {error}");
    }
}
