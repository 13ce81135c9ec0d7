//! loom explores the clock of a lease: `scripts/models lease`.

use std::time::Duration;

use tollgate::Clock;

use crate::lease::lease_time::LeaseTime;
use crate::sync::Ordering;

/// The real time, in nanoseconds. It stands still.
const NOW: u64 = 1_000;
/// The end of a first lease, whose tokens have matured.
const FIRST: u64 = 10;

/// Explores a thread that reads the time while another adds tokens that mature later, by `extend`.
fn explore(extend: impl Fn(&LeaseTime) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let clock = Clock::from_fn(|| Duration::from_nanos(NOW));
        let origin = Clock::from_fn(|| Duration::ZERO).now();
        let time = loom::sync::Arc::new(LeaseTime::new(clock, origin));
        time.extend(0, FIRST);
        let writer = loom::thread::spawn({
            let time = time.clone();
            move || {
                extend(&time);
                extend(&time);
            }
        });
        for _ in 0..2 {
            let read = time.read();
            assert!(read <= Duration::from_nanos(FIRST), "{read:?}: tokens matured too soon");
        }
        writer.join().unwrap();
    });
}

/// Adds tokens that begin to mature now.
fn add(time: &LeaseTime) {
    let end = time.end.load(Ordering::Relaxed);
    time.extend(NOW, end + 5);
}

#[test]
fn no_token_matures_before_its_time() {
    explore(add);
}

#[test]
#[should_panic(expected = "tokens matured too soon")]
fn the_model_sees_an_end_that_is_stored_first() {
    explore(|time| {
        let end = time.end.load(Ordering::Relaxed);
        time.end.store(end + 5, Ordering::Release);
        time.offset.store(NOW - end, Ordering::Release);
    });
}

#[test]
#[should_panic(expected = "tokens matured too soon")]
fn the_model_sees_relaxed_stores() {
    explore(|time| {
        let end = time.end.load(Ordering::Relaxed);
        time.offset.store(NOW - end, Ordering::Relaxed);
        time.end.store(end + 5, Ordering::Relaxed);
    });
}
