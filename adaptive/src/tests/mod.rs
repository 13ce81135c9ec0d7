//! Tests of private items: the word, the controllers, and the models.

#[cfg(not(any(loom, shuttle)))]
mod control;
#[cfg(not(any(loom, shuttle)))]
mod inflight;
#[cfg(any(loom, shuttle))]
mod models;

/// Returns a configuration of `cases` random cases of a microsecond; in a fast run of 64 times
/// `FEW_CASES`. `PROPTEST_CASES` overrides both.
#[cfg(not(any(loom, shuttle)))]
fn short_cases(cases: u32) -> proptest::test_runner::Config {
    let few = std::env::var("FEW_CASES").ok().map(|few| few.parse::<u32>().expect("FEW_CASES is a number"));
    let mut config = proptest::test_runner::Config { failure_persistence: None, ..Default::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = few.map_or(cases, |few| few * 64);
    }
    config
}
