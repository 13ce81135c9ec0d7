//! loom, which tries every interleaving.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::sync::Notify;
pub(super) use loom::thread;

/// Tries `f` in every interleaving with at most `LOOM_MAX_PREEMPTIONS` (3) preemptions, and prints
/// their number.
pub(in crate::tests::models) fn explore(name: &str, f: impl Fn() + Sync + Send + 'static) {
    explore_within(3, name, f);
}

/// Does the same, with plain loads within another number of preemptions than 3: for a model that
/// would run for hours.
pub(in crate::tests::models) fn explore_within(
    with_plain_loads: usize,
    name: &str,
    f: impl Fn() + Sync + Send + 'static,
) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let mut model = loom::model::Builder::new();
    let preemptions = if cfg!(rmw_loads) { 3 } else { with_plain_loads };
    model.preemption_bound = model.preemption_bound.or(Some(preemptions));
    model.max_branches = 5_000;
    model.check(move || {
        count.fetch_add(1, Relaxed);
        f();
    });
    println!("{name}: {} executions", executions.load(Relaxed));
    assert!(executions.load(Relaxed) > 10, "the model has hardly any interleavings");
}

/// A gate that is opened once.
pub(super) struct Gate(Notify, std::sync::atomic::AtomicBool);

impl Gate {
    pub(super) fn new() -> Gate {
        Gate(Notify::new(), false.into())
    }

    pub(super) fn open(&self) {
        self.1.store(true, Relaxed);
        self.0.notify();
    }

    pub(super) fn wait(&self) {
        // The wait may end without a notification.
        while !self.1.load(Relaxed) {
            self.0.wait();
        }
    }
}
