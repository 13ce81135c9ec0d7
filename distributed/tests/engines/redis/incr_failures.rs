//! The counts of envoyproxy/ratelimit on servers that fail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::Value;
use tollgate_distributed::{IncrStore, Op, RedisStore, Store, StoreErrorKind};
use tollgate_test_servers::net::{Cut, Direction, Proxy};
use tollgate_test_servers::redis::{Cluster, Pair, Redis, redis_is_installed};

use super::cluster::url_of;
use super::engine::{LOOK, ONE, ask, connection, counted, server};
use super::incr::{DAY, Reference, fixed, take};

/// The longest silence of a server, which a busy machine keeps.
const LIMIT: Duration = Duration::from_secs(1);

fn redis_at(url: &str) -> RedisStore {
    RedisStore::builder().response_timeout(LIMIT).connect_timeout(LIMIT).lazy(url).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_before_its_answer_counts_at_most_once() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = IncrStore::new(redis_at(&format!("redis://127.0.0.1:{}", proxy.port())));
    let direct = IncrStore::new(RedisStore::builder().lazy(&server.url()).unwrap());
    ask(&store, "key_", fixed(100, DAY), ONE).await.unwrap();
    for (direction, after) in [(Direction::Calls, 1), (Direction::Answers, 2)] {
        proxy.lose(direction, true);
        let call = tokio::spawn({
            let store = store.clone();
            async move { ask(&store, "key_", fixed(100, DAY), ONE).await }
        });
        let counted = || async { 100 - ask(&direct, "key_", fixed(100, DAY), LOOK).await.unwrap().credits };
        if direction == Direction::Answers {
            // The server counts, and the connection ends without the answer.
            let begin = Instant::now();
            while counted().await < after && begin.elapsed() < LIMIT * 10 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            proxy.cut(Cut::Reset);
        }
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
        proxy.lose(direction, false);
        assert_eq!(counted().await, after);
        // A call may still find the old connection.
        let mut looks = 0..10;
        while ask(&store, "key_", fixed(100, DAY), LOOK).await.is_err() {
            looks.next().expect("the next call has a new connection");
        }
    }
    assert_eq!(ask(&store, "key_", fixed(100, DAY), ONE).await.unwrap().credits, 97);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_unknown_in_time_and_the_other_server_answers() {
    let Some(mut seconds) = server() else { return };
    let others = Redis::start(&[]).unwrap();
    let store = IncrStore::new(redis_at(&others.url())).per_second(&redis_at(&seconds.url()));
    let calls = [Op::new(b"second_", fixed(9_000, 1), ONE), Op::new(b"day_", fixed(9_000, DAY), ONE)];
    let mut ops = calls;
    store.acquire(&mut ops).await.unwrap();
    let keys = |server: &Redis| Reference(vec![connection(server)]).all().into_keys().collect::<Vec<_>>();
    assert!(keys(&others)[0].starts_with("day_"));
    assert!(keys(&seconds).iter().all(|key| key.starts_with("second_")));
    let lanes = calls.map(|op| store.lane_of(&op));
    assert_ne!(lanes[0], lanes[1]);
    seconds.process().freeze().unwrap();
    let mut ops = calls;
    let begin = Instant::now();
    let error = store.acquire(&mut ops).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
    assert!(begin.elapsed() < LIMIT * 5);
    assert_eq!([ops[0].answer.now_us > 0, ops[1].answer.granted == 1], [false, true]);
    // The probe of each lane is decided by its server.
    for (lane, answers) in lanes.into_iter().zip([false, true]) {
        let key = store.probe_key(lane);
        let probed = store.acquire(&mut [Op::new(&key, counted(1), ONE)]).await;
        assert_eq!(probed.is_ok(), answers, "{probed:?}");
    }
    seconds.process().thaw().unwrap();
}

#[tokio::test]
async fn each_node_of_a_cluster_is_a_lane_with_a_probe() {
    if !redis_is_installed() {
        return;
    }
    let mut cluster = Cluster::start(0, &[]).unwrap();
    let store = IncrStore::new(redis_at(&url_of(&cluster)));
    let keys: Vec<String> = (0..60).map(|key| format!("{key}_")).collect();
    ask(&store, &keys[0], fixed(9, DAY), ONE).await.unwrap();
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::new(key.as_bytes(), fixed(9, DAY), ONE)).collect();
    let mut lanes: BTreeMap<u32, Vec<Op<'_>>> = BTreeMap::new();
    ops.iter().for_each(|op| lanes.entry(store.lane_of(op)).or_default().push(*op));
    assert_eq!(lanes.len(), 3);
    cluster.nodes[1].process().kill();
    let mut away = 0;
    for (lane, mut ops) in lanes {
        let called = store.acquire(&mut ops).await;
        let probe = store.probe_key(lane);
        let probed = store.acquire(&mut [Op::new(&probe, counted(1), ONE)]).await;
        assert_eq!(called.is_ok(), probed.is_ok(), "{called:?} {probed:?}");
        away += usize::from(called.is_err());
    }
    assert_eq!(away, 1);
}

#[tokio::test]
async fn a_replica_costs_one_call_and_then_a_new_connection() {
    if !redis_is_installed() {
        return;
    }
    let pair = Pair::start(&[]).unwrap();
    let proxy = Proxy::start(pair.replica.port()).await.unwrap();
    let store = IncrStore::new(redis_at(&format!("redis://127.0.0.1:{}", proxy.port())));
    let refused = ask(&store, "key_", fixed(100, DAY), ONE).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused}");
    proxy.switch(pair.primary.port());
    assert_eq!(ask(&store, "key_", fixed(100, DAY), ONE).await.unwrap().credits, 99);
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_connection_of_the_caller_has_the_same_counts() {
    let Some(server) = server() else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let own = client.get_multiplexed_async_connection().await.unwrap();
    let store = IncrStore::new(RedisStore::builder().with_connection(own).unwrap());
    ask(&store, "key_", fixed(100, DAY), take(3)).await.unwrap();
    let value: Value = redis::cmd("KEYS").arg("key_*").query(&mut connection(&server)).unwrap();
    assert!(matches!(value, Value::Array(keys) if keys.len() == 1));
}
