//! Servers, and short forms of calls.

use std::time::Duration;

use redis::Commands;
use tollgate::Quota;
use tollgate_distributed::{Amount, Answer, Bucket, Op, RedisStore, Spec, Store, StoreError};
use tollgate_test_servers::redis::{Redis, redis_is_installed};

/// One token, or none.
pub(crate) const ONE: Amount = Amount { min: 1, max: 1, spent: 0 };

/// Nothing is taken.
pub(crate) const LOOK: Amount = Amount { min: 0, max: 0, spent: 0 };

/// All tokens that are there.
pub(crate) const ALL: Amount = Amount { min: 0, max: i64::MAX, spent: 0 };

/// Starts a server, if the program is installed.
pub(crate) fn server() -> Option<Redis> {
    redis_is_installed().then(|| Redis::start(&[]).unwrap())
}

pub(crate) fn per_second(rate: u64, burst: u64) -> Spec {
    Spec::new(Quota::per_second(rate).burst(burst), 0).unwrap()
}

/// A bucket of which each token is counted: it earns one each day.
pub(crate) fn counted(burst: u64) -> Spec {
    Spec::new(Quota::per_day(1).burst(burst), 0).unwrap()
}

pub(crate) async fn ask(
    store: &RedisStore,
    key: &str,
    spec: Spec,
    amount: Amount,
) -> Result<Answer, StoreError> {
    let mut ops = [Op::new(key.as_bytes(), spec, amount)];
    store.acquire(&mut ops).await.map(|()| ops[0].answer)
}

/// Returns the whole tokens of a bucket. One of `counted` earns none meanwhile.
pub(crate) async fn tokens(store: &RedisStore, key: &str, spec: Spec) -> u64 {
    spec.tokens(ask(store, key, spec, LOOK).await.unwrap().credits)
}

/// Calls until a call succeeds, for at most some seconds.
pub(crate) async fn heal(store: &RedisStore, key: &str, spec: Spec) -> Answer {
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        match ask(store, key, spec, ONE).await {
            Ok(answer) => return answer,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn connection(server: &Redis) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

/// Returns the bytes of a bucket.
pub(crate) fn bytes_of(bucket: &Bucket) -> Vec<u8> {
    let numbers = [bucket.credits, bucket.last_us as i64, bucket.per_token as i64];
    numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(7)).collect()
}

pub(crate) fn forge(server: &Redis, key: &str, bucket: &Bucket) {
    connection(server).set::<_, _, ()>(format!("tollgate:{key}"), bytes_of(bucket)).unwrap();
}

/// Returns the server's time, in microseconds.
pub(crate) async fn now(store: &RedisStore) -> u64 {
    ask(store, "a key that is never taken from", counted(1), LOOK).await.unwrap().now_us
}

/// The seconds that a test of the whole takes; `TOLLGATE_SECONDS` makes it a longer one.
pub(crate) fn duration(seconds: u64) -> Duration {
    let given = std::env::var("TOLLGATE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(seconds))
}
