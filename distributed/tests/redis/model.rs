//! Random steps on the server and by `Bucket::step`: the numbers and the stored bytes are equal.

use redis::Pipeline;
use tollgate::Quota;
use tollgate_distributed::{Amount, Bucket, Op, RedisStore, Spec, Store};

use crate::helpers::{bytes_of, connection, server};

/// Buckets of one batch.
const KEYS: usize = 64;
const STEPS: usize = 100_000;
const COUNTED: i64 = 1 << 53;

/// A generator of random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number of `0..bound` of any magnitude.
    fn any_below(&mut self, bound: u64) -> u64 {
        let bits = self.below(65 - u64::from(bound.leading_zeros()));
        self.below(bound.min(1 << bits))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn spec(&mut self) -> Spec {
        loop {
            let nanos = self.pick(&[1_000, 1_000_000_000, 3_600_000_000_000, 86_400_000_000_000, 0]);
            let nanos = if nanos == 0 { 1 + self.any_below(1 << 47) } else { nanos };
            let period = std::time::Duration::from_nanos(nanos);
            let tokens = 1 + self.any_below(1 << 34);
            let Ok(Ok(one)) = Quota::try_per(tokens, period, 1).map(|quota| Spec::new(quota, 0)) else {
                continue;
            };
            // The largest bursts use most of the numbers that a double counts.
            let largest = (COUNTED as u64 / 20 * 19 / one.per_token()).max(1);
            let burst = if self.below(4) == 0 { largest } else { 1 + self.any_below(largest) };
            let debt = if self.below(3) == 0 { self.any_below(burst) } else { 0 };
            let quota = Quota::try_per(tokens, period, burst);
            if let Ok(Ok(spec)) = quota.map(|quota| Spec::new(quota, debt)) {
                return spec;
            }
        }
    }

    fn amount(&mut self, spec: &Spec) -> Amount {
        let burst = spec.quota().capacity();
        let near = (burst + self.below(5)).saturating_sub(2) as i64;
        let mut amount = Amount::default();
        match self.below(8) {
            0 => {}
            1 => amount.max = -(self.any_below(2 * burst) as i64) - 1,
            2 => amount.max = self.pick(&[i64::MIN, i64::MAX, -near - 1]),
            3 => (amount.min, amount.max) = (1, 1),
            4 => (amount.min, amount.max) = (1, near),
            5 => amount.min = self.pick(&[i64::MIN, -1, i64::MAX, near]),
            _ => amount.min = self.any_below(burst + 2) as i64,
        }
        if amount.max == 0 && self.below(4) > 0 {
            amount.max = amount.min.saturating_add(self.any_below(burst + 1) as i64).max(0);
        }
        if self.below(4) == 0 {
            amount.spent = self.pick(&[1, self.0 % burst, burst, 2 * burst, u64::MAX]);
        }
        amount
    }

    /// A bucket as another spec, another clock or a long time may leave it.
    fn bucket(&mut self, spec: &Spec, now_us: u64) -> Bucket {
        let (wide, tick) = (spec.floor() + spec.capacity(), spec.tick_us());
        let per_token = match self.below(3) {
            0 => 1 + self.any_below(COUNTED as u64 - 1),
            _ => spec.per_token(),
        };
        let credits = match self.below(6) {
            0 => self.any_below(COUNTED as u64) as i64,
            1 => -(self.any_below(COUNTED as u64) as i64),
            2 => -(self.below(COUNTED as u64) as i64),
            _ => self.below(wide + 1) as i64 - spec.floor() as i64,
        };
        let fill = spec.fill_ticks().saturating_mul(tick);
        let gap = match self.below(6) {
            0 => 0,
            1 => self.any_below(3 * tick),
            2 => (fill + self.below(3)).saturating_sub(1),
            _ => self.any_below(fill.saturating_mul(2)),
        };
        let ahead = [1, 999_999, 1_000_000, 10_000_000, 1 << 50];
        let last_us = match self.below(6) {
            0 => now_us + self.pick(&ahead),
            _ => now_us.saturating_sub(gap),
        };
        Bucket { credits, last_us, per_token }
    }
}

/// The buckets of the model, and their specs.
struct World {
    random: Random,
    keys: Vec<String>,
    specs: Vec<Spec>,
    buckets: Vec<Option<Bucket>>,
    now_us: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let specs = (0..KEYS).map(|_| random.spec()).collect();
        let keys = (0..KEYS).map(|key| format!("key {key}")).collect();
        World { random, keys, specs, buckets: vec![None; KEYS], now_us: 1_700_000_000_000_000 }
    }

    /// Changes some specs and some buckets. No bucket expires until the next batch.
    fn prepare(&mut self) -> Pipeline {
        let mut pipeline = redis::pipe();
        for key in 0..KEYS {
            if self.random.below(4) == 0 {
                self.specs[key] = self.random.spec();
            }
            let stored = format!("tollgate:{}", self.keys[key]);
            match self.random.below(8) {
                0 => {
                    self.buckets[key] = None;
                    pipeline.del(stored).ignore();
                }
                1..=4 => {
                    let bucket = self.random.bucket(&self.specs[key], self.now_us);
                    self.buckets[key] = Some(bucket);
                    pipeline.set(stored, bytes_of(&bucket)).ignore();
                }
                _ => {
                    pipeline.persist(stored).ignore();
                }
            }
        }
        pipeline
    }

    fn ops<'k>(&mut self, keys: &'k [String]) -> Vec<Op<'k>> {
        let op = |(key, &spec): (&'k String, _)| Op::new(key.as_bytes(), spec, self.random.amount(&spec));
        keys.iter().zip(&self.specs).map(op).collect()
    }

    /// Compares the answers and the stored bytes with the model's.
    fn check(&mut self, ops: &[Op<'_>], stored: &[(Option<Vec<u8>>, i64)]) {
        self.now_us = ops[0].answer.now_us;
        for (key, (op, (bytes, ttl_ms))) in ops.iter().zip(stored).enumerate() {
            let before = self.buckets[key];
            let (after, answer) = Bucket::step(before, &op.spec, self.now_us, op.amount);
            assert_eq!(op.answer, answer, "{before:?} {:?} {:?}", op.spec, op.amount);
            let left = after.or(before);
            assert_eq!(
                *bytes,
                left.map(|bucket| bytes_of(&bucket)),
                "{before:?} {:?} {:?}",
                op.spec,
                op.amount
            );
            match after {
                Some(bucket) => check_ttl(&bucket, &op.spec, *ttl_ms),
                // It was not written, so it has no expiry of the script.
                None => assert_eq!(*ttl_ms, if before.is_some() { -1 } else { -2 }),
            }
            self.buckets[key] = left;
        }
    }
}

/// A bucket expires a second after it is full: the longest step back after which a bucket waits. In
/// debt it is a tick more.
fn check_ttl(bucket: &Bucket, spec: &Spec, ttl_ms: i64) {
    const LATE_MS: i64 = 500;
    let missing = (spec.capacity() as i64 - bucket.credits) as u64;
    let full_us = u128::from(missing.div_ceil(spec.per_tick())) * u128::from(spec.tick_us());
    let full_ms = i64::try_from(full_us.div_ceil(1_000)).map_or(COUNTED, |ms| (ms + 1_001).min(COUNTED));
    // A long time is rounded to the 53 bits of a double.
    let (tick_ms, rounding_ms) = (spec.tick_us() as i64 / 1_000, full_ms >> 51);
    assert!(ttl_ms >= full_ms - rounding_ms - LATE_MS, "{ttl_ms} of {full_ms} ms: {bucket:?} {spec:?}");
    assert!(ttl_ms <= full_ms + rounding_ms + tick_ms + 1, "{ttl_ms} of {full_ms} ms: {bucket:?} {spec:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_steps_equal_those_of_the_model() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut raw = connection(&server);
    let seed = std::env::var("TOLLGATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut world = World::new(seed);
    let keys = world.keys.clone();
    for _ in 0..STEPS.div_ceil(KEYS) {
        world.prepare().query::<()>(&mut raw).unwrap();
        let mut ops = world.ops(&keys);
        store.acquire(&mut ops).await.unwrap();
        let mut read = redis::pipe();
        for key in &keys {
            read.get(format!("tollgate:{key}")).pttl(format!("tollgate:{key}"));
        }
        let stored: Vec<redis::Value> = read.query(&mut raw).unwrap();
        let (pairs, _) = stored.as_chunks::<2>();
        let pair = |[bytes, ttl]: &[redis::Value; 2]| {
            (redis::from_redis_value_ref(bytes).unwrap(), redis::from_redis_value_ref(ttl).unwrap())
        };
        world.check(&ops, &pairs.iter().map(pair).collect::<Vec<_>>());
    }
}
