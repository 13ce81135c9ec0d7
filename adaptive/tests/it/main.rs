//! The promises of the crate, checked through its public face: one binary, one file a promise.

#![cfg(not(any(loom, shuttle)))]

use proptest::test_runner::{Config, RngSeed};

mod keys;
mod layer;
mod quota;
#[path = "../../../tests/windows/random.rs"]
mod random;

/// Returns random cases, the same in every run, or as many new ones as `PROPTEST_CASES` says.
/// `FEW_CASES` makes a run fast.
fn cases(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = std::env::var("FEW_CASES").map_or(cases, |few| few.parse().expect("it is a number"));
        config.rng_seed = RngSeed::Fixed(0x70_11_6a_7e);
    }
    config
}
