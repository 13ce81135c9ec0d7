//! shuttle, which tries random interleavings of sequentially consistent memory.

use std::env;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex};
pub(super) use shuttle::thread;
use shuttle::{Config, Runner};

/// Preemptions of a schedule of probabilistic concurrency testing.
const DEPTH: usize = 3;

/// Tries `f` in `SHUTTLE_SCHEDULES` (10,000) random schedules, and in the same number with three
/// preemptions at random places.
pub(in crate::tests::models) fn explore(name: &str, f: impl Fn() + Sync + Send + 'static) {
    let schedules =
        env::var("SHUTTLE_SCHEDULES").map_or(10_000, |n| n.parse().expect("a number of schedules"));
    let f = std::sync::Arc::new(f);
    let again = std::sync::Arc::clone(&f);
    let random = Runner::new(RandomScheduler::new(schedules), Config::new()).run(move || f());
    let bounded = Runner::new(PctScheduler::new(DEPTH, schedules), Config::new()).run(move || again());
    println!("{name}: {random} random schedules, {bounded} of {DEPTH} preemptions");
    assert_eq!((random, bounded), (schedules, schedules));
}

/// Does the same: a schedule takes no longer for more preemptions.
pub(in crate::tests::models) fn explore_within(_: usize, name: &str, f: impl Fn() + Sync + Send + 'static) {
    explore(name, f);
}

/// A gate that is opened once.
pub(super) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub(super) fn new() -> Gate {
        Gate(Mutex::new(false), Condvar::new())
    }

    pub(super) fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    pub(super) fn wait(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |open| !*open).unwrap());
    }
}
