//! The script on the server: it is lost, and loaded again.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Quota;
use tollgate_distributed::{CountSpec, DistributedLimiter, Op, RedisStore, Spec, Store, StoreErrorKind};
use tollgate_test_servers::redis::Redis;

use super::engine::{ONE, ask, connection, counted, server};
use crate::engine::load_time;
use crate::suite::load::{begin, load, no_token_is_lost_or_made};

/// Returns the calls of a command since the server started.
fn calls_of(server: &Redis, command: &str) -> u64 {
    let stats = server.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
    let calls = stats.strip_prefix("calls=").and_then(|rest| rest.split(',').next()).unwrap_or("0");
    calls.parse().unwrap()
}

/// Flushes the scripts until it is aborted.
async fn flush_scripts(server: Arc<Redis>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let server = Arc::clone(&server);
        let flush = move || server.command(&["SCRIPT", "FLUSH"]).unwrap();
        tokio::task::spawn_blocking(flush).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_the_script_each_100_ms_fails_no_call_and_takes_no_token_twice() {
    let Some(server) = server().map(Arc::new) else { return };
    let store = Arc::new(RedisStore::connect(&server.url()).await.unwrap());
    let flushing = tokio::spawn(flush_scripts(Arc::clone(&server)));
    let mut run = begin(&*store, b"hot").await;
    run.add(load(&[Arc::clone(&store)], 64, b"hot", load_time(1)).await);
    flushing.abort();
    let _ = flushing.await;
    assert_eq!(run.failed, 0);
    no_token_is_lost_or_made(&*store, b"hot", &run).await;
    let (flushes, loads) = (calls_of(&server, "script|flush"), calls_of(&server, "script|load"));
    assert!(flushes >= 5, "{flushes} flushes");
    assert_eq!(loads, flushes + 1, "one load at the first call, and one after each flush");
}

#[tokio::test]
async fn calls_at_once_load_the_script_once() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let calls = (0..50).map(|call| {
        let store = store.clone();
        tokio::spawn(async move { ask(&store, &format!("key {call}"), counted(5), ONE).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().granted, 1);
    }
    assert_eq!(calls_of(&server, "script|load"), 1);
}

#[tokio::test]
async fn a_batch_is_a_command_for_each_64_keys() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    ask(&store, "first", counted(5), ONE).await.unwrap();
    let before = calls_of(&server, "evalsha");
    let keys: Vec<String> = (0..130).map(|key| format!("key {key}")).collect();
    let specs = [counted(5), counted(7)];
    let op = |(at, key): (usize, &'_ String)| (at % 2, key.clone());
    let named: Vec<(usize, String)> = keys.iter().enumerate().map(op).collect();
    let mut ops: Vec<Op<'_>> =
        named.iter().map(|(spec, key)| Op::new(key.as_bytes(), specs[*spec], ONE)).collect();
    store.acquire(&mut ops).await.unwrap();
    assert_eq!(calls_of(&server, "evalsha") - before, 3);
    for (op, (spec, _)) in ops.iter().zip(&named) {
        let left = (specs[*spec].quota().capacity() - 1) * specs[*spec].per_token();
        assert_eq!((op.answer.granted, op.answer.credits), (1, left as i64));
    }
}

#[tokio::test]
async fn a_batch_without_calls_asks_no_server() {
    let store = RedisStore::builder().lazy("redis://127.0.0.1:1").unwrap();
    store.acquire(&mut []).await.unwrap();
}

#[tokio::test]
async fn prefixes_and_keys_are_bytes() {
    let Some(server) = server() else { return };
    let store = RedisStore::builder().prefix(b"\0{a}\r\n:".to_vec()).connect(&server.url()).await.unwrap();
    let mut ops = [Op::new(b"\xff\0 \r\n$5", counted(5), ONE), Op::new(b"", counted(5), ONE)];
    store.acquire(&mut ops).await.unwrap();
    let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection(&server)).unwrap();
    keys.sort();
    assert_eq!(keys, [b"\0{a}\r\n:".to_vec(), b"\0{a}\r\n:\xff\0 \r\n$5".to_vec()]);
}

/// Each of these would be the key `shop:limits:a:b`, and the last one the bucket of probes.
#[tokio::test]
async fn no_key_of_a_prefix_is_one_of_another_prefix() {
    let Some(server) = server() else { return };
    let mut stores = 0;
    for (prefix, name, key) in [
        ("shop:", "limits", "a:b"),
        ("shop:limits:", "a", "b"),
        ("", "shop", "limits:a:b"),
        ("shop", "x", "y"),
        ("shop-limits:", "a", "b"),
        (":", "shop", "limits:a:b"),
    ] {
        let store = match RedisStore::builder().prefix(prefix).lazy(&server.url()) {
            Ok(store) => store,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
                assert!(error.to_string().contains(&format!("{prefix:?} does not end")), "{error}");
                continue;
            }
        };
        let builder = DistributedLimiter::<String, _>::builder(Quota::per_hour(1), store).name(name);
        let limiter = builder.exact().deadline(Duration::from_secs(10)).build().unwrap();
        let granted = limiter.ask(key).await;
        assert!(granted.is_ok(), "{prefix:?}, {name:?}, {key:?}: {granted:?}");
        stores += 1;
    }
    assert_eq!(stores, 3);
}

/// The bytes of a bucket and of counts: README has these figures.
#[tokio::test]
async fn a_bucket_takes_104_bytes_and_a_count_120_to_248() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut raw = connection(&server);
    let mut bytes = |key: &str| -> u64 { redis::cmd("MEMORY").arg(&["USAGE", key]).query(&mut raw).unwrap() };
    ask(&store, "clients:127.0.0.1", Spec::new(Quota::per_hour(5), 0).unwrap(), ONE).await.unwrap();
    let mut sizes = vec![bytes("tollgate:clients:127.0.0.1")];
    for window in ["5/h fixed", "5/h sliding"] {
        let spec = CountSpec::new(window.parse().unwrap(), Duration::ZERO).unwrap();
        let key = format!("{}:127.0.0.1", &window[4..]);
        ask(&store, &key, spec, ONE).await.unwrap();
        sizes.push(bytes(&format!("tollgate::count:{{tollgate:{key}}}")));
    }
    println!("{sizes:?} bytes");
    let most = [104, 120, 248];
    assert!(sizes.iter().zip(most).all(|(size, most)| (most * 3 / 4..=most).contains(size)), "{sizes:?}");
}
