//! One key under load from several connections.

use std::sync::Arc;

use tollgate_distributed::RedisStore;

use crate::bound::{contended, load, no_token_is_lost_or_made};
use crate::helpers::{load_time, server, take_half};
use crate::keys;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_connections_grant_the_burst_and_the_rate_and_no_token_more_or_less() {
    let Some(server) = server() else { return };
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(Arc::new(RedisStore::connect(&server.url()).await.unwrap()));
    }
    let time = load_time(2);
    let mut run = take_half(&stores[0], "hot").await;
    run.add(load(&stores, 64, b"hot", time).await);
    assert_eq!(run.failed, 0);
    no_token_is_lost_or_made(&*stores[0], b"hot", &run).await;
    let spec = contended();
    assert!(run.calls > 2 * spec.quota().tokens() * time.as_secs(), "too few calls: {}", run.calls);
    // All tokens earned until the last grant are granted, but for those of a pause of the callers.
    let times = run.grants.iter().map(|grant| grant.now_us);
    let elapsed = times.clone().max().unwrap() - times.min().unwrap();
    let came = spec.capacity() + elapsed * spec.per_tick();
    let granted = run.granted() as u64 * spec.per_token();
    let pause = spec.per_tick() * 200_000;
    assert!(granted <= came && granted + spec.per_token() + pause > came, "{granted} of {came} credits");
    println!("{} calls, {} granted, in {time:?}", run.calls, run.granted());
}

#[tokio::test]
async fn each_key_has_its_own_bucket() {
    let Some(server) = server() else { return };
    keys::each_key_has_its_own_bucket(RedisStore::connect(&server.url()).await.unwrap()).await;
}
