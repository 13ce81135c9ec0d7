//! Tests of private items: the pure step, the compiled terms, and the models.

#[cfg(not(loom))]
#[path = "../../tests/reference/mod.rs"]
mod reference;

#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod law;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod plans;
#[cfg(not(loom))]
mod properties;
#[cfg(not(loom))]
mod state;
#[cfg(not(loom))]
mod terms;
#[cfg(not(loom))]
mod tiny;
#[cfg(not(loom))]
mod verbs;

/// This many random cases, or as many as `PROPTEST_CASES` says.
#[cfg(not(loom))]
fn cases(cases: u32) -> proptest::test_runner::Config {
    let mut config = proptest::test_runner::Config { failure_persistence: None, ..Default::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}
