//! Servers, and short forms of calls.

use std::time::{Duration, Instant};

use redis::Commands;
use tollgate::Quota;
use tollgate_distributed::{Amount, Answer, Bucket, Op, RedisStore, Spec, Store, StoreError};
use tollgate_test_servers::redis::{Redis, redis_is_installed};

use crate::bound::{Run, contended};

/// Takes one token, or none.
pub(crate) const ONE: Amount = Amount { min: 1, max: 1, spent: 0 };

/// Takes nothing.
pub(crate) const LOOK: Amount = Amount { min: 0, max: 0, spent: 0 };

/// Takes all tokens in the bucket.
pub(crate) const ALL: Amount = Amount { min: 0, max: i64::MAX, spent: 0 };

/// Starts a server, if the program is installed.
pub(crate) fn server() -> Option<Redis> {
    redis_is_installed().then(|| Redis::start(&[]).unwrap())
}

pub(crate) fn per_second(rate: u64, burst: u64) -> Spec {
    Spec::new(Quota::per_second(rate).burst(burst), 0).unwrap()
}

/// A quota that earns one token a day, so that taken tokens can be counted.
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

/// Returns the tokens taken from a full bucket that earns none meanwhile.
pub(crate) async fn taken(store: &RedisStore, key: &str, spec: Spec) -> u64 {
    let level = ask(store, key, spec, LOOK).await.unwrap().credits;
    // Some seconds earn a part of a token.
    ((spec.capacity() as i64 - level) as u64).div_ceil(spec.per_token())
}

/// Takes tokens, one at a time, until a call succeeds. Returns the calls that failed, and the time.
pub(crate) async fn heal(store: &RedisStore, key: &str, spec: Spec) -> (Vec<StoreError>, Duration) {
    let (begin, mut failed) = (Instant::now(), Vec::new());
    loop {
        match ask(store, key, spec, ONE).await {
            Ok(_) => return (failed, begin.elapsed()),
            Err(error) if begin.elapsed() > Duration::from_secs(10) => panic!("{error}"),
            Err(error) => failed.push(error),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
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

/// Takes half of the bucket of a load, so that it is not full again.
pub(crate) async fn take_half(store: &RedisStore, key: &str) -> Run {
    let half = contended().quota().capacity() as i64 / 2;
    let answer = ask(store, key, contended(), Amount { min: half, max: half, spent: 0 }).await;
    Run { calls: 1, failed: 0, grants: vec![answer.unwrap()] }
}

/// The length of a load, in seconds, from `TOLLGATE_SECONDS`.
pub(crate) fn load_time(seconds: u64) -> Duration {
    Duration::from_secs(crate::world::setting("TOLLGATE_SECONDS", seconds))
}
