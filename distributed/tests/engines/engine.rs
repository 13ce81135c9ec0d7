//! An engine as the suite sees it: its store, its table, and its server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate::Quota;
use tollgate_distributed::{Amount, Bucket, Count, Op, Spec, Store, StoreAnswer, StoreError, StoreErrorKind};
use tollgate_test_servers::process::Process;
use tollgate_testing::size;

/// A row of the table of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) credits: i64,
    pub(crate) last_us: i64,
    pub(crate) unit: i64,
    pub(crate) full_us: i64,
}

pub(crate) type Rows = BTreeMap<Vec<u8>, Stored>;

/// The rows of the table of counts.
pub(crate) type Counts = BTreeMap<Vec<u8>, Count>;

/// The options of a store, of which each engine has those that it knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) connections: usize,
    /// The longest wait for a connection, for a lock, and for an answer.
    pub(crate) patience: Duration,
}

/// Options under which no call fails on a busy machine: a row is locked for as long as a process of
/// the server has no processor.
pub(crate) const PATIENT: Options = Options { connections: 2, patience: Duration::from_secs(60) };

/// An engine with an empty table, which the test reads and writes over a connection of its own.
pub(crate) trait Engine: Sized {
    type Store: Store;

    /// The steps of the random walk.
    const STEPS: u64 = 100_000;
    /// Whether each row of a batch is checked before one is written. Else constraints keep wrong
    /// rows out, and a call that writes such a row is decided.
    const CHECKS_ROWS: bool = true;

    /// Starts it. There is none if its program is not installed.
    async fn start() -> Option<Self>;

    /// Returns the store of the engine, which is patient.
    fn store(&self) -> &Self::Store;

    /// Returns another store on the same table, with connections of its own.
    fn connect(&self, options: Options) -> Self::Store;

    async fn rows(&mut self) -> Rows;

    /// Writes rows.
    async fn put(&mut self, rows: &Rows);

    /// Deletes rows.
    async fn delete(&mut self, keys: &[Vec<u8>]);

    /// Lets the table have rows that are no bucket, as another program might write them. An engine
    /// with constraints shows first that they refuse each of these rows.
    async fn lift_constraints(&mut self, _wrong: &[Stored]) {}

    /// Returns the deadlocks that the server has found. A call in one is sent once more.
    async fn deadlocks(&mut self) -> u64 {
        0
    }

    /// Checks the row that a call wrote for its bucket.
    fn check(row: &Stored, bucket: &Bucket, spec: &Spec, op: &Op<'_>) {
        assert_eq!(*row, Stored::of(bucket, spec), "the row of {op:?}");
    }

    /// Returns the counts of windows.
    async fn counts(&mut self) -> Counts;

    /// Writes counts.
    async fn put_counts(&mut self, counts: &Counts);

    /// Writes a count with any bytes as its numbers. Returns whether the table takes it.
    async fn put_used(&mut self, key: &[u8], start_us: u64, used: &[u8], end_us: u64) -> bool;

    /// Deletes counts.
    async fn delete_counts(&mut self, keys: &[Vec<u8>]);

    /// Takes a token of [`KEY`](crate::suite::before::KEY) as a process of an earlier version.
    /// Returns whether it was granted.
    async fn take_as_before(&mut self) -> bool;
}

/// An engine with a server.
pub(crate) trait Server: Engine {
    /// Addresses that no server can have.
    const WRONG_URLS: &[&str];
    /// The error of a call on a frozen server: its kind, and a part of its text.
    const FROZEN: (StoreErrorKind, &str);

    fn process(&mut self) -> &mut Process;

    /// Starts the killed server again, at the same port.
    fn restart(&mut self);

    /// Returns a store at a URL. It connects by its first call.
    fn open(url: &str) -> Result<Self::Store, StoreError>;

    /// Returns the URL of a server at a port.
    fn url(port: u16) -> String;

    /// Returns stores that the server never admits: their account, its rights or the database is
    /// missing.
    async fn strangers(&mut self) -> Vec<Self::Store>;

    /// Ends the sessions of all stores. Returns their number.
    async fn end_sessions(&mut self) -> u64;
}

/// An engine with tables, whose rows another session locks.
pub(crate) trait Sql: Engine {
    /// The statements that begin a transaction which locks all rows.
    const LOCK: &str = "BEGIN; SELECT id FROM tollgate_buckets FOR UPDATE";
    /// The patience of a store that gives a lock up, and a part of its error.
    const TOO_LONG: (Duration, &str);
    /// A statement that takes a part of the store away, and a part of the error after it.
    const MISSING: (&str, &str);

    /// Runs statements in the other session.
    async fn run(&mut self, sql: &str);

    /// Waits until a session waits for a lock.
    async fn wait_for_a_lock(&mut self);

    /// Returns a text that any write changes.
    async fn writes(&mut self) -> String;

    /// Makes the tables and the functions of the store.
    async fn migrate(&self);

    /// Deletes the rows that have decided nothing for a time. Returns their number.
    async fn clean_up(&self, time: Duration) -> u64;
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

/// Returns the numbers of a count in the bytes of a store: seven each, the uppermost first.
pub(crate) fn bytes_of_count(used: &[u64]) -> Vec<u8> {
    used.iter().flat_map(|used| used.to_be_bytes().into_iter().skip(1)).collect()
}

/// Reads the numbers of a count.
pub(crate) fn count_of(start_us: i64, used: &[u8], end_us: i64) -> Count {
    assert_eq!(used.len() % 7, 0, "{used:?}");
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    Count { start_us: start_us as u64, used: used.chunks(7).map(number).collect(), end_us: end_us as u64 }
}

/// Returns the clock of this process, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Returns the length of a load, five times as long with `FULL`.
pub(crate) fn load_time(seconds: u64) -> Duration {
    Duration::from_secs(size(seconds, 5 * seconds))
}

/// Decides one call.
pub(crate) async fn ask(store: &impl Store, key: &[u8], spec: Spec, amount: Amount) -> StoreAnswer {
    let mut ops = [Op::new(key, spec, amount)];
    store.acquire(&mut ops).await.unwrap();
    ops[0].answer
}

/// Decides one call for one token of a bucket that earns none.
pub(crate) async fn take(store: &impl Store, key: &[u8]) -> Result<StoreAnswer, StoreError> {
    let mut ops = [Op::new(key, slow(), exactly(1))];
    store.acquire(&mut ops).await?;
    Ok(ops[0].answer)
}

/// Returns the tokens that were taken of such a bucket.
pub(crate) async fn taken(store: &impl Store, key: &[u8]) -> u64 {
    let look = ask(store, key, slow(), exactly(0)).await;
    // Some seconds earn a part of a token.
    (slow().capacity() - look.credits as u64).div_ceil(slow().per_token())
}

/// Returns the error of a call.
pub(crate) async fn failure(store: &impl Store) -> (StoreErrorKind, String) {
    let error = take(store, b"key").await.expect_err("the call was decided");
    (error.kind(), error.to_string())
}

/// Calls until one is answered.
pub(crate) async fn heals(store: &impl Store) -> StoreAnswer {
    let end = Instant::now() + PATIENT.patience;
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
    Amount { min: n, max: n, spent: 0, of_us: 0 }
}
