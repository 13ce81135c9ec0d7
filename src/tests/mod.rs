//! Tests of private items: the pure step, the compiled terms, and the models.

#[cfg(not(any(loom, shuttle)))]
#[path = "../../tests/reference/mod.rs"]
mod reference;

#[cfg(not(any(loom, shuttle)))]
mod calibration;
#[cfg(not(any(loom, shuttle)))]
mod decision;
#[cfg(not(any(loom, shuttle)))]
mod frames;
#[cfg(not(any(loom, shuttle)))]
mod identities;
#[cfg(not(any(loom, shuttle)))]
mod law;
#[cfg(not(any(loom, shuttle)))]
mod leases;
#[cfg(not(any(loom, shuttle)))]
mod line;
#[cfg(not(any(loom, shuttle)))]
mod line_edges;
#[cfg(any(loom, shuttle))]
mod models;
#[cfg(not(any(loom, shuttle)))]
mod next_token;
#[cfg(not(any(loom, shuttle)))]
mod no_key;
#[cfg(not(any(loom, shuttle)))]
mod places;
#[cfg(not(any(loom, shuttle)))]
mod places_in_use;
#[cfg(not(any(loom, shuttle)))]
mod planned_attempts;
#[cfg(not(any(loom, shuttle)))]
mod plans;
#[cfg(not(any(loom, shuttle)))]
mod properties;
#[cfg(not(any(loom, shuttle)))]
mod queue;
#[cfg(not(any(loom, shuttle)))]
mod races;
#[cfg(not(any(loom, shuttle)))]
mod resizes;
#[cfg(not(any(loom, shuttle)))]
mod saved;
#[cfg(not(any(loom, shuttle)))]
mod spread;
#[cfg(not(any(loom, shuttle)))]
mod state;
#[cfg(not(any(loom, shuttle)))]
mod terms;
#[cfg(not(any(loom, shuttle)))]
mod tiny;
#[cfg(not(any(loom, shuttle)))]
mod tiny_windows;
#[cfg(not(any(loom, shuttle)))]
mod verbs;
#[cfg(not(any(loom, shuttle)))]
mod windows;

/// Returns a configuration of `cases` random cases, or of as many as `FEW_CASES` says.
/// `PROPTEST_CASES` overrides both.
#[cfg(not(any(loom, shuttle)))]
fn cases(cases: u32) -> proptest::test_runner::Config {
    config(few().unwrap_or(cases))
}

/// Like [`cases`], for cases that take a microsecond: a fast run has 64 times `FEW_CASES` of them.
#[cfg(not(any(loom, shuttle)))]
fn short_cases(cases: u32) -> proptest::test_runner::Config {
    config(few().map_or(cases, |few| few * 64))
}

/// Returns the number of random cases in a fast run, from `FEW_CASES`.
#[cfg(not(any(loom, shuttle)))]
fn few() -> Option<u32> {
    std::env::var("FEW_CASES").ok().map(|few| few.parse().expect("FEW_CASES is a number"))
}

#[cfg(not(any(loom, shuttle)))]
fn config(cases: u32) -> proptest::test_runner::Config {
    let mut config = proptest::test_runner::Config { failure_persistence: None, ..Default::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}
#[cfg(not(any(loom, shuttle)))]
mod waiting;
#[cfg(not(any(loom, shuttle)))]
mod waits;
