//! Sizes of tests, and random cases.

use std::env;

use proptest::test_runner::{Config, RngSeed};

/// Returns the quick size of a test, or the whole one if `FULL` is in the environment.
pub fn size<T>(quick: T, whole: T) -> T {
    if env::var_os("FULL").is_some() { whole } else { quick }
}

/// Returns random cases, the same in every run, or as many new ones as `PROPTEST_CASES` says.
/// A quick run has a fortieth of them.
pub fn cases(whole: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_local_rejects: u32::MAX, ..Config::default() };
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = size(whole.div_ceil(40), whole);
        config.rng_seed = RngSeed::Fixed(0x70_11_6a_7e);
    }
    config
}
