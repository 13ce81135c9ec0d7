//! Random cases.

use std::env;

use proptest::test_runner::{Config, RngSeed};

/// Returns random cases, the same in every run, or as many new ones as `PROPTEST_CASES` says.
/// `FEW_CASES` makes a run fast.
pub fn cases(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_local_rejects: u32::MAX, ..Config::default() };
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = env::var("FEW_CASES").map_or(cases, |few| few.parse().expect("it is a number"));
        config.rng_seed = RngSeed::Fixed(0x70_11_6a_7e);
    }
    config
}
