//! A store, and the table behind it.

use std::collections::BTreeMap;
use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate::Quota;
use tollgate_distributed::{Amount, Answer, Bucket, Op, Spec, Store, StoreError, StoreErrorKind};

/// A row of the table of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) credits: i64,
    pub(crate) last_us: i64,
    pub(crate) unit: i64,
    pub(crate) full_us: i64,
}

pub(crate) type Rows = BTreeMap<Vec<u8>, Stored>;

/// A store whose table the test reads and writes, over a connection of its own.
pub(crate) trait World {
    type Store: Store;

    fn store(&self) -> &Self::Store;
    async fn rows(&mut self) -> Rows;
    /// Writes rows.
    async fn put(&mut self, rows: &Rows);
    /// Deletes rows.
    async fn delete(&mut self, keys: &[Vec<u8>]);
}

impl Stored {
    /// Returns the row that a store must write for a bucket.
    pub(crate) fn of(bucket: &Bucket, spec: &Spec) -> Stored {
        let fill_us = u128::from(spec.fill_ticks()) * u128::from(spec.tick_us());
        let last_us = bucket.last_us as i64;
        let full_us = last_us + fill_us.min(1 << 61) as i64;
        Stored { credits: bucket.credits, last_us, unit: bucket.per_token as i64, full_us }
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket { credits: self.credits, last_us: self.last_us as u64, per_token: self.unit as u64 }
    }
}

/// Returns the clock of this process, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Returns a number from an environment variable, or the default.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Decides one call.
pub(crate) async fn ask(store: &impl Store, key: &[u8], spec: Spec, amount: Amount) -> Answer {
    let mut ops = [Op::new(key, spec, amount)];
    store.acquire(&mut ops).await.unwrap();
    ops[0].answer
}

/// Decides one call for one token of a bucket that earns none.
pub(crate) async fn take(store: &impl Store, key: &[u8]) -> Result<Answer, StoreError> {
    let mut ops = [Op::new(key, slow(), exactly(1))];
    store.acquire(&mut ops).await?;
    Ok(ops[0].answer)
}

/// Returns the error of a call.
pub(crate) async fn failure(store: &impl Store) -> (StoreErrorKind, String) {
    let error = take(store, b"key").await.expect_err("the call was decided");
    (error.kind(), error.to_string())
}

/// Calls until one is answered, for some seconds at most.
pub(crate) async fn heals(store: &impl Store) -> Answer {
    let end = Instant::now() + Duration::from_secs(3);
    loop {
        match take(store, b"healed").await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A bucket of 1,000 tokens that earns none while a test runs.
pub(crate) fn slow() -> Spec {
    Spec::new(Quota::per_day(1).burst(1_000), 0).unwrap()
}

/// Takes exactly `n` tokens or none.
pub(crate) fn exactly(n: i64) -> Amount {
    Amount { min: n, max: n, spent: 0 }
}
