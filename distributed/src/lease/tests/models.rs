//! loom explores the clock of a lease, and the end of a window: `scripts/models lease`.

use std::time::Duration;

use tollgate::Clock;

use crate::lease::ending::EndingTokens;
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

/// The end of the first window, at which the clock of the takers stands.
const EDGE: u64 = 100;

/// Explores a taker at a time after the first window, while a writer begins the second one by
/// `begin` and puts one token into it.
fn explore_windows(begin: impl Fn(&EndingTokens) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let clock = Clock::from_fn(|| Duration::from_nanos(EDGE));
        let origin = Clock::from_fn(|| Duration::ZERO).now();
        let tokens = loom::sync::Arc::new(EndingTokens::new(clock, origin));
        // Three tokens of a window that is over now.
        tokens.begin(EDGE + 1);
        tokens.put(3);
        tokens.until.swap(EDGE, Ordering::AcqRel);
        let writer = loom::thread::spawn({
            let tokens = tokens.clone();
            move || {
                begin(&tokens);
                tokens.put(1);
            }
        });
        let taken = tokens.take_up_to(4);
        writer.join().unwrap();
        assert!(taken <= 1, "{taken} tokens, some of the window before");
        assert!(taken + tokens.held() <= 1, "a token twice");
    });
}

#[test]
fn no_token_outlives_its_window() {
    explore_windows(|tokens| _ = tokens.begin(EDGE + 50));
}

#[test]
#[should_panic(expected = "of the window before")]
fn the_model_sees_an_end_before_the_tokens_are_dropped() {
    explore_windows(|tokens| {
        tokens.until.swap(EDGE + 50, Ordering::AcqRel);
        tokens.begin(EDGE + 50);
    });
}
