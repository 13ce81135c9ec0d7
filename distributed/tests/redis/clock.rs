//! A step back of the server's clock: buckets with a time in the future.

use std::time::{Duration, Instant};

use tollgate_distributed::{Bucket, RedisStore};

use crate::helpers::{ALL, LOOK, ONE, ask, forge, per_second, server};

const SECOND: Duration = Duration::from_secs(1);

/// Takes single tokens until three are granted. Returns the time to the first and to the third.
async fn three(store: &RedisStore, key: &str, spec: tollgate_distributed::Spec) -> (Duration, Duration) {
    let (begin, mut first) = (Instant::now(), None);
    for _ in 0..3 {
        while ask(store, key, spec, ONE).await.unwrap().granted == 0 {
            assert!(begin.elapsed() < 3 * SECOND, "a stall");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        first.get_or_insert_with(|| begin.elapsed());
    }
    (first.unwrap(), begin.elapsed())
}

#[tokio::test]
async fn a_step_back_of_a_second_at_most_is_waited_for() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let spec = per_second(20, 40);
    let now_us = ask(&store, "short", spec, LOOK).await.unwrap().now_us;
    let last_us = now_us + 700_000;
    forge(&server, "short", &Bucket { credits: 0, last_us, per_token: spec.per_token() });
    let (first, all) = three(&store, "short", spec).await;
    assert!(first >= Duration::from_millis(700), "a token after {first:?}");
    assert!(all < 2 * SECOND, "{all:?}");
}

#[tokio::test]
async fn a_step_back_of_ten_seconds_mints_nothing_and_stalls_nothing() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let spec = per_second(20, 40);
    let now_us = ask(&store, "long", spec, LOOK).await.unwrap().now_us;
    for (key, left) in [("long", 2), ("empty", 0)] {
        let (credits, last_us) = (left * spec.per_token() as i64, now_us + 10_000_000);
        forge(&server, key, &Bucket { credits, last_us, per_token: spec.per_token() });
        let taken = ask(&store, key, spec, ALL).await.unwrap();
        assert_eq!((taken.granted, taken.credits), (left, 0), "the tokens that were left, and no other");
        let (first, all) = three(&store, key, spec).await;
        assert!(first >= Duration::from_millis(40) && all >= Duration::from_millis(140), "{first:?} {all:?}");
        assert!(all < SECOND, "a stall: {all:?}");
    }
}
