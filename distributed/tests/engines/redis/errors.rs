//! Servers that refuse calls: the effect of each error, and its text.

use redis::aio::MultiplexedConnection;
use tollgate_distributed::{Bucket, Op, RedisStore, Store, StoreErrorKind};
use tollgate_test_servers::redis::Redis;

use super::engine::{ONE, ask, bytes_of, connection, counted, heal, server, taken};

async fn kind_of(store: &RedisStore) -> StoreErrorKind {
    ask(store, "key", counted(100), ONE).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_key_that_holds_no_bucket_is_named_and_no_call_of_its_batch_takes_a_token() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut raw = connection(&server);
    let sound = Bucket { credits: 0, last_us: 1, per_token: 1 };
    let forged = [
        Bucket { per_token: 0, ..sound },
        Bucket { per_token: 1 << 53, ..sound },
        Bucket { credits: 1 << 53, ..sound },
        Bucket { credits: -(1 << 53), ..sound },
        Bucket { last_us: 1 << 53, ..sound },
    ];
    let mut states: Vec<Vec<u8>> = forged.iter().map(bytes_of).collect();
    states.extend([b"".to_vec(), b"text".to_vec(), [bytes_of(&sound), vec![0]].concat()]);
    for state in states {
        redis::cmd("SET").arg("tollgate:bad").arg(&state).exec(&mut raw).unwrap();
        let mut ops = [Op::new(b"good", counted(100), ONE), Op::new(b"bad", counted(100), ONE)];
        let error = store.acquire(&mut ops).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{state:?}: {error}");
        assert!(error.to_string().contains("\"bad\""), "{error}");
        let left: Vec<u8> = redis::cmd("GET").arg("tollgate:bad").query(&mut raw).unwrap();
        assert_eq!(left, state);
    }
    redis::cmd("DEL").arg("tollgate:bad").exec(&mut raw).unwrap();
    redis::cmd("SADD").arg("tollgate:bad").arg("member").exec(&mut raw).unwrap();
    let error = ask(&store, "bad", counted(100), ONE).await.unwrap_err();
    assert!(error.kind() == StoreErrorKind::Permanent && error.to_string().contains("\"bad\""), "{error}");
    assert_eq!(taken(&store, "good", counted(100)).await, 0);
}

#[tokio::test]
async fn a_server_without_memory_refuses() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    ask(&store, "key", counted(100), ONE).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    assert_eq!(kind_of(&store).await, StoreErrorKind::Refused);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    ask(&store, "key", counted(100), ONE).await.unwrap();
    assert_eq!(taken(&store, "key", counted(100)).await, 2);
}

#[tokio::test]
async fn a_server_without_replicas_refuses() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    assert_eq!(kind_of(&store).await, StoreErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_refuses() {
    let Some(server) = server().map(std::sync::Arc::new) else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    ask(&store, "key", counted(100), ONE).await.unwrap();
    server.command(&["CONFIG", "SET", "busy-reply-threshold", "1"]).unwrap();
    let busy = std::sync::Arc::clone(&server);
    let script = tokio::task::spawn_blocking(move || busy.command(&["EVAL", "while true do end", "0"]));
    let mut kinds = Vec::new();
    while !kinds.contains(&Some(StoreErrorKind::Refused)) {
        assert!(kinds.len() < 1_000, "never busy");
        kinds.push(ask(&store, "key", counted(1_000), ONE).await.err().map(|error| error.kind()));
    }
    assert!(kinds.iter().flatten().all(|&kind| kind == StoreErrorKind::Refused), "{kinds:?}");
    server.command(&["SCRIPT", "KILL"]).unwrap();
    assert!(script.await.unwrap().is_err());
    heal(&store, "key", counted(1_000)).await;
}

#[tokio::test]
async fn a_store_takes_the_callers_own_connection() {
    let Some(server) = server() else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let own: MultiplexedConnection = client.get_multiplexed_async_connection().await.unwrap();
    let store = RedisStore::builder().with_connection(own).unwrap();
    ask(&store, "key", counted(100), ONE).await.unwrap();
    assert_eq!(taken(&store, "key", counted(100)).await, 1);
}

#[tokio::test]
async fn a_store_outlives_the_runtime_that_connected_it() {
    let Some(server) = server() else { return };
    let url = server.url();
    let store = RedisStore::builder().lazy(&url).unwrap();
    let ran = std::thread::scope(|scope| scope.spawn(|| first_runtime(&store)).join());
    ran.unwrap();
    // The connection ended with the other runtime.
    let (failed, _) = heal(&store, "key", counted(100)).await;
    assert!(failed.len() <= 1, "{failed:?}");
}

fn first_runtime(store: &RedisStore) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { ask(store, "key", counted(100), ONE).await.unwrap() });
}

#[test]
fn no_test_uses_a_server_of_the_system() {
    let Some(server) = server() else { return };
    assert_ne!(server.port(), 6_379);
    assert!(Redis::start(&["--port", "nonsense"]).is_err());
}
