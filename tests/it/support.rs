//! Hashers, quotas and spans of time, and the clock and the answers of the reference.

use std::cell::RefCell;
use std::env;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{UnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use tollgate::Quota;

pub(crate) use crate::random::Random;
use crate::reference::Unit;
pub(crate) use crate::reference::answers::answer;
pub(crate) use crate::reference::time::{Time, nanos};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const HOUR: u64 = 3_600 * SECOND;
pub(crate) const DAY: u64 = 24 * HOUR;

pub(crate) const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub(crate) fn unit_of(quota: Quota) -> Unit {
    Unit::choose(quota.tokens(), nanos(quota.period()), quota.capacity()).expect("a quota has a unit")
}

/// Returns the nanoseconds of `ticks` ticks, rounded up.
pub(crate) fn ticks(quota: Quota, ticks: u64) -> u64 {
    let unit = unit_of(quota);
    let span = (u128::from(nanos(quota.period())) * u128::from(ticks)) << unit.scale;
    u64::try_from(span.div_ceil(u128::from(quota.tokens()) << unit.fraction)).expect("a few ticks are short")
}

/// Returns the time to fill an empty bucket, rounded up.
pub(crate) fn fill(quota: Quota) -> u64 {
    let span = u128::from(nanos(quota.period())) * u128::from(quota.capacity());
    u64::try_from(span.div_ceil(u128::from(quota.tokens()))).expect("a bucket fills within 2^62 ns")
}

/// A hasher that returns the written number, so that a test chooses which keys collide.
#[derive(Clone, Copy, Default)]
pub(crate) struct Plain(u64);

impl BuildHasher for Plain {
    type Hasher = Plain;

    fn build_hasher(&self) -> Plain {
        Plain(0)
    }
}

impl Hasher for Plain {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(5) ^ word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A key that collides with every other key of its `hash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Twin {
    pub(crate) hash: u64,
    pub(crate) id: u64,
}

impl Hash for Twin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Returns random cases, the same in every run, or as many new ones as `PROPTEST_CASES` says.
/// `FEW_CASES` makes a run fast.
pub(crate) fn cases(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_local_rejects: u32::MAX, ..Config::default() };
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = env::var("FEW_CASES").map_or(cases, |few| few.parse().expect("it is a number"));
        config.rng_seed = RngSeed::Fixed(0x70_11_6a_7e);
    }
    config
}

/// Usual quotas, and some at the edges of the range.
pub(crate) const QUOTAS: [(u64, u64, u64); 24] = [
    (1, SECOND, 1),
    (100, SECOND, 200),
    (1_000, SECOND, 1_000),
    (7, SECOND, 10),
    (12_345, SECOND, 777),
    (333_333, SECOND, 50),
    (1_000_000, SECOND, 1_000_000),
    (1_000_000, SECOND, 10),
    (1_000_000_000, SECOND, 1_000_000),
    (12_500_000_000, SECOND, 64 << 20),
    (150_000_001, SECOND, 1_000),
    (1_000, HOUR, 1_000),
    (999_983, HOUR, 1_000_000),
    (5, DAY, 5),
    (1, 365 * DAY, 1),
    (1_000_000_000_000, SECOND, 1_000_000_000),
    (1, 1 << 62, 1),
    (3, 1 << 62, 3),
    (1_000, 1, 1),
    (1_000_000_000_000, SECOND, 1 << 40),
    (1_000, SECOND, 1 << 40),
    (7_919, 104_729, 611_953),
    (1, 3, 10),
    (999_999_999_989, SECOND, 65_537),
];

/// Returns any quota that can be held, over all magnitudes. Half of them are from the list.
pub(crate) fn quotas() -> impl Strategy<Value = Quota> {
    let spread = || (0..63_u32, any::<u64>()).prop_map(|(shift, n)| (n >> 1 >> shift).max(1));
    let any_quota =
        (spread(), spread(), spread()).prop_filter_map("cannot be held", |(tokens, nanos, burst)| {
            // The reference counts in 128 bits.
            let (tokens, nanos, burst) = (tokens.min(1 << 44), nanos.min(1 << 62), burst.min(1 << 40));
            Quota::try_per(tokens, ns(nanos), burst).ok()
        });
    let listed = (0..QUOTAS.len()).prop_map(|row| {
        let (tokens, nanos, burst) = QUOTAS[row];
        Quota::try_per(tokens, ns(nanos), burst).expect("it can be held")
    });
    prop_oneof![any_quota, listed]
}

/// Returns the text of the panic that `build` ends in.
pub(crate) fn panic_of<T>(build: impl FnOnce() -> T + UnwindSafe) -> String {
    let panic = catch_unwind(build).err().expect("it panics");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a panic has a text")).to_owned(),
    }
}

/// Returns the file that a panic names as its place.
pub(crate) fn file_of_panic(call: impl FnOnce() + UnwindSafe) -> String {
    thread_local! {
        static FILE: RefCell<String> = const { RefCell::new(String::new()) };
    }
    static NOTES: Once = Once::new();
    NOTES.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            let file = panic.location().map(|place| place.file().to_owned()).unwrap_or_default();
            FILE.with(|noted| noted.replace(file));
            before(panic);
        }));
    });
    catch_unwind(call).expect_err("it panics");
    FILE.with(RefCell::take)
}
