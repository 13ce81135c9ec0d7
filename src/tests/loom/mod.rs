//! Models of the production code under loom, on a clock that moves while the threads run.
//!
//! Run them as `RUSTFLAGS="--cfg loom --cfg rmw_loads" cargo test --lib --release loom` and without
//! `rmw_loads` (see `src/sync.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

mod bucket;
mod map;
mod regime;
mod verbs;
mod world;

/// Explores `f`, at most `LOOM_MAX_PREEMPTIONS` (3) preemptions each, and prints how many executions it took.
fn explore(name: &str, f: impl Fn() + Sync + Send + 'static) {
    explore_within(3, name, f);
}

/// As [`explore`], at most so many preemptions unless `LOOM_MAX_PREEMPTIONS` says.
fn explore_within(preemptions: usize, name: &str, f: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(preemptions));
    model.check(move || {
        count.fetch_add(1, Relaxed);
        f();
    });
    println!("{name}: {} executions", executions.load(Relaxed));
    assert!(executions.load(Relaxed) > 10, "the model has hardly any interleavings");
}
