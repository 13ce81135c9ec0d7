//! A network that is slow or silent, and a server that is frozen: the effect of a call is unknown.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use tollgate_distributed::{RedisStore, StoreErrorKind};
use tollgate_test_servers::net::{Cut, Direction, Proxy};

use super::engine::{ONE, ask, counted, heal, server, taken};

/// The time of a connection or an answer, which a busy machine keeps.
const LIMIT: Duration = Duration::from_secs(1);

/// The deadline of a caller.
const DEADLINE: Duration = Duration::from_millis(50);

/// A time far above that of each step.
const PATIENCE: Duration = Duration::from_secs(20);

async fn impatient(port: u16) -> RedisStore {
    with_limit(port, LIMIT).await
}

async fn with_limit(port: u16, limit: Duration) -> RedisStore {
    let builder = RedisStore::builder().response_timeout(limit).connect_timeout(limit);
    builder.connect(&format!("redis://127.0.0.1:{port}")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_is_of_unknown_effect_and_its_token_is_taken_once() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, direct) = (impatient(proxy.port()).await, RedisStore::connect(&server.url()).await.unwrap());
    ask(&store, "key", counted(100), ONE).await.unwrap();
    proxy.delay(Direction::Answers, LIMIT * 2);
    let error = ask(&store, "key", counted(100), ONE).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
    assert_eq!(taken(&direct, "key", counted(100)).await, 2);
    proxy.delay(Direction::Answers, Duration::ZERO);
    // The late answer is not taken for that of a later call.
    let other = ask(&store, "other", counted(7), ONE).await.unwrap();
    assert_eq!((other.granted, other.credits), (1, 6 * counted(7).per_token() as i64));
    assert_eq!(taken(&direct, "key", counted(100)).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_within_the_limit_is_that_of_its_call() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = with_limit(proxy.port(), PATIENCE).await;
    ask(&store, "key", counted(100), ONE).await.unwrap();
    proxy.delay(Direction::Answers, LIMIT);
    assert_eq!(ask(&store, "key", counted(100), ONE).await.unwrap().granted, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_calls_and_lost_answers_are_taken_once_or_never() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, direct) = (impatient(proxy.port()).await, RedisStore::connect(&server.url()).await.unwrap());
    ask(&store, "key", counted(100), ONE).await.unwrap();
    for (direction, after) in [(Direction::Calls, 1), (Direction::Answers, 2)] {
        proxy.lose(direction, true);
        let error = ask(&store, "key", counted(100), ONE).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
        assert_eq!(taken(&direct, "key", counted(100)).await, after);
        proxy.lose(direction, false);
        // The connection must be a new one: the old one lost bytes.
        heal(&store, "other", counted(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_replaced_though_no_caller_waits_for_its_limit() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = impatient(proxy.port()).await;
    ask(&store, "key", counted(100), ONE).await.unwrap();
    proxy.cut(Cut::HalfOpen);
    let begin = Instant::now();
    while timeout(DEADLINE, ask(&store, "key", counted(100), ONE)).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "the silent connection is still in use");
    }
}
