//! A server of Redis, and short forms of calls.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::Commands;
use tollgate::Quota;
use tollgate_distributed::{
    Amount, Bucket, Law, Op, RedisStore, Spec, Store, StoreAnswer, StoreError, StoreErrorKind,
};
use tollgate_test_servers::process::Process;
use tollgate_test_servers::redis::{Data, Redis, redis_is_installed};

use crate::engine::{
    Counts, Engine, Options, PATIENT, Rows, Server, Stored, bytes_of_count, count_of, now_us,
};
use crate::suite::before::{KEY, NUMBERS};

/// Takes one token, or none.
pub(crate) const ONE: Amount = Amount { min: 1, max: 1, spent: 0, of_us: 0 };

/// Takes nothing.
pub(crate) const LOOK: Amount = Amount { min: 0, max: 0, spent: 0, of_us: 0 };

/// Takes all tokens in the bucket.
pub(crate) const ALL: Amount = Amount { min: 0, max: i64::MAX, spent: 0, of_us: 0 };

/// The expiry of keys that the test has seen, in milliseconds since 1970, so that none expires.
const SEEN_MS: i64 = (1 << 52) + 7;

/// The expiries from here on are those of no call.
const COUNTED: i64 = 1 << 53;

/// A server, its store, and a second connection.
pub(crate) struct Keys {
    store: RedisStore,
    other: redis::Connection,
    server: Redis,
    /// The expiries that the keys had, in microseconds since 1970.
    expiries: HashMap<Vec<u8>, i64>,
}

/// Starts a server, if the program is installed.
pub(crate) fn server() -> Option<Redis> {
    redis_is_installed().then(|| Redis::start(&[]).unwrap())
}

fn connect(url: &str, patience: Duration) -> RedisStore {
    RedisStore::builder().response_timeout(patience).connect_timeout(patience).lazy(url).unwrap()
}

/// Returns the name of a key in the server.
fn name(key: &[u8]) -> Vec<u8> {
    [b"tollgate:".as_slice(), key].concat()
}

impl Engine for Keys {
    type Store = RedisStore;

    async fn start() -> Option<Keys> {
        let server = server()?;
        let (store, other) = (connect(&server.url(), PATIENT.patience), connection(&server));
        Some(Keys { store, other, server, expiries: HashMap::new() })
    }

    fn store(&self) -> &RedisStore {
        &self.store
    }

    fn connect(&self, options: Options) -> RedisStore {
        connect(&self.server.url(), options.patience)
    }

    /// Returns the expiry of a key as the time from which its bucket is full.
    async fn rows(&mut self) -> Rows {
        let mut names: Vec<Vec<u8>> = self.other.keys("tollgate:*").unwrap();
        names.retain(|name| !name.starts_with(b"tollgate::"));
        if names.is_empty() {
            return Rows::new();
        }
        let mut read = redis::pipe();
        for name in &names {
            read.get(name).cmd("PEXPIRETIME").arg(name).cmd("PEXPIREAT").arg(name).arg(SEEN_MS).ignore();
        }
        let values: Vec<redis::Value> = read.query(&mut self.other).unwrap();
        let mut rows = Rows::new();
        for (name, pair) in names.iter().zip(values.chunks_exact(2)) {
            let key = name.strip_prefix(b"tollgate:").unwrap().to_vec();
            let bytes: Vec<u8> = redis::from_redis_value_ref(&pair[0]).unwrap();
            let expiry_ms: i64 = redis::from_redis_value_ref(&pair[1]).unwrap();
            if expiry_ms != SEEN_MS {
                self.expiries.insert(key.clone(), expiry_ms * 1_000);
            }
            let [credits, last_us, unit] = [0, 7, 14].map(|at| {
                let mut word = [0; 8];
                word[1..].copy_from_slice(&bytes[at..at + 7]);
                i64::from_le_bytes(word) >> 8
            });
            let full_us = self.expiries[&key];
            rows.insert(key, Stored { credits, last_us, unit, full_us });
        }
        rows
    }

    async fn put(&mut self, rows: &Rows) {
        if rows.is_empty() {
            return;
        }
        let mut write = redis::pipe();
        for (key, row) in rows {
            write.set(name(key), bytes_of(&row.bucket())).ignore();
            write.cmd("PEXPIREAT").arg(name(key)).arg(SEEN_MS).ignore();
            self.expiries.insert(key.clone(), row.full_us);
        }
        write.query::<()>(&mut self.other).unwrap();
    }

    async fn delete(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            self.other.del::<_, ()>(name(key)).unwrap();
        }
    }

    /// Checks the expiry of each count: a second after its end, and a millisecond for rounding.
    async fn counts(&mut self) -> Counts {
        let names: Vec<Vec<u8>> = self.other.keys("tollgate::count:*").unwrap();
        let mut counts = Counts::new();
        for name in names {
            let bytes: Vec<u8> = self.other.get(&name).unwrap();
            let time =
                |at: usize| bytes[at..at + 7].iter().fold(0, |number, &byte| number << 8 | i64::from(byte));
            let count = count_of(time(0), &bytes[14..], time(7));
            let expiry_ms: i64 = redis::cmd("PEXPIRETIME").arg(&name).query(&mut self.other).unwrap();
            if expiry_ms != SEEN_MS {
                let late_ms = expiry_ms - count.end_us as i64 / 1_000;
                assert!((1_000..60_000).contains(&late_ms), "{late_ms} ms after the end");
                let () = redis::cmd("PEXPIREAT").arg(&name).arg(SEEN_MS).query(&mut self.other).unwrap();
            }
            let key = name.strip_prefix(b"tollgate::count:").unwrap();
            let tagged = key.strip_prefix(b"{tollgate:").and_then(|key| key.strip_suffix(b"}"));
            counts.insert(tagged.unwrap_or(key).to_vec(), count);
        }
        counts
    }

    async fn put_counts(&mut self, counts: &Counts) {
        for (key, count) in counts {
            let times = [count.start_us, count.end_us];
            let bytes = [bytes_of_count(&times), bytes_of_count(&count.used)].concat();
            let mut write = redis::pipe();
            write.set(count_name(key), bytes).ignore();
            write.cmd("PEXPIREAT").arg(count_name(key)).arg(SEEN_MS).ignore();
            write.query::<()>(&mut self.other).unwrap();
        }
    }

    async fn put_used(&mut self, key: &[u8], start_us: u64, used: &[u8], end_us: u64) -> bool {
        let bytes = [bytes_of_count(&[start_us, end_us]), used.to_vec()].concat();
        self.other.set::<_, _, ()>(count_name(key), bytes).is_ok()
    }

    /// The script of that version is named by its digest, so it is the present one.
    async fn take_as_before(&mut self) -> bool {
        let [capacity, floor, debt, tick_us, per_tick, unit, fill_ticks] = NUMBERS;
        let pack = |numbers: &[i64]| {
            numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(7)).collect()
        };
        let specs: Vec<u8> = pack(&[capacity, unit, per_tick, tick_us, floor, debt, fill_ticks]);
        // The number of the spec, the fewest and the most tokens, and the spent ones.
        let calls: Vec<u8> = std::iter::once(0).chain(pack(&[1, 1, 0]) as Vec<u8>).collect();
        let mut call = redis::cmd("EVALSHA");
        call.arg("31e14d843258cfffe1e897edb438b33f111f7a0f").arg(1).arg(name(KEY)).arg(specs).arg(calls);
        call.query::<Vec<i64>>(&mut self.other).unwrap()[0] == 1
    }

    async fn delete_counts(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            self.other.del::<_, ()>(count_name(key)).unwrap();
        }
    }

    /// A bucket expires a second after it is full: the longest step back after which a bucket
    /// waits. In debt it is a tick more.
    fn check(row: &Stored, bucket: &Bucket, spec: &Spec, op: &Op<'_>) {
        assert_eq!(row.bucket(), *bucket, "the bytes of {op:?}");
        let missing = (spec.capacity() as i64 - bucket.credits) as u64;
        let full_us = u128::from(missing.div_ceil(spec.per_tick())) * u128::from(spec.tick_us());
        let full_ms = i64::try_from(full_us.div_ceil(1_000)).map_or(COUNTED, |ms| (ms + 1_001).min(COUNTED));
        // A long time is rounded to the 53 bits of a double, and the clock to a millisecond.
        let (tick_ms, rounding_ms) = (spec.tick_us() as i64 / 1_000, (full_ms >> 51) + 1);
        let ttl_ms = row.full_us / 1_000 - op.answer.now_us as i64 / 1_000;
        assert!(ttl_ms >= full_ms - rounding_ms, "{ttl_ms} of {full_ms} ms: {op:?}");
        // The server reads its clock again for the expiry: on a busy machine that is later.
        let late_ms = (now_us() as i64 - op.answer.now_us as i64).max(0) / 1_000 + 1;
        assert!(ttl_ms <= full_ms + rounding_ms + tick_ms + late_ms, "{ttl_ms} of {full_ms} ms: {op:?}");
    }
}

/// Returns the name of a count in the server, of a key without braces.
fn count_name(key: &[u8]) -> Vec<u8> {
    [b"tollgate::count:{tollgate:".as_slice(), key, b"}"].concat()
}

impl Server for Keys {
    const WRONG_URLS: &[&str] = &[
        "",
        "localhost",
        "http://localhost",
        "redis+cluster://",
        "redis+cluster://a,,b",
        "redis://a:b:c",
        "redis+sentinel://a",
        "redis+sentinel://a,,b/main",
    ];
    const FROZEN: (StoreErrorKind, &str) = (StoreErrorKind::Unknown, "");

    fn process(&mut self) -> &mut Process {
        self.server.process()
    }

    fn restart(&mut self) {
        self.server.restart(Data::Empty).unwrap();
    }

    fn open(url: &str) -> Result<RedisStore, StoreError> {
        RedisStore::builder().lazy(url)
    }

    fn url(port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }

    async fn strangers(&mut self) -> Vec<RedisStore> {
        let limit = ["ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-evalsha"];
        self.server.command(&limit).unwrap();
        self.server.command(&["CONFIG", "SET", "requirepass", "secret"]).unwrap();
        let at = format!("127.0.0.1:{}", self.server.port());
        [format!("redis://limited:secret@{at}"), format!("redis://limited:wrong@{at}"), self.server.url()]
            .map(|url| RedisStore::builder().lazy(&url).unwrap())
            .into()
    }

    async fn end_sessions(&mut self) -> u64 {
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut self.other).unwrap()
    }
}

pub(crate) fn per_second(rate: u64, burst: u64) -> Spec {
    Spec::new(Quota::per_second(rate).burst(burst), 0).unwrap()
}

/// A quota that earns one token a day, so that taken tokens can be counted.
pub(crate) fn counted(burst: u64) -> Spec {
    Spec::new(Quota::per_day(1).burst(burst), 0).unwrap()
}

pub(crate) async fn ask(
    store: &impl Store,
    key: &str,
    law: impl Into<Law>,
    amount: Amount,
) -> Result<StoreAnswer, StoreError> {
    let mut ops = [Op::new(key.as_bytes(), law, amount)];
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

/// Returns the bytes of a bucket. A number that needs more than 7 bytes is the largest of them.
pub(crate) fn bytes_of(bucket: &Bucket) -> Vec<u8> {
    let numbers = [bucket.credits, bucket.last_us as i64, bucket.per_token as i64];
    numbers
        .map(|number| number.clamp(-(1 << 55), (1 << 55) - 1))
        .iter()
        .flat_map(|number| number.to_le_bytes().into_iter().take(7))
        .collect()
}
