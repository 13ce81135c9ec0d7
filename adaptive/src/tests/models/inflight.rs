// promise: inflight
//! A limit on requests in flight, whose threads enter, leave, set it, and run its controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as Count, Ordering::Relaxed};
use std::time::Duration;

use super::checker::thread;
use super::explore;
use crate::count::atomic_word::AtomicFlightWord;
use crate::sync::{AtomicU32, Ordering};
use crate::{Controller, Fraction, Inflight, Next, Priority, Samples};
use tollgate::Clock;

#[test]
fn each_admission_is_within_the_limit() {
    explore("each_admission_is_within_the_limit", || {
        let word = Arc::new(AtomicFlightWord::new(2));
        let enters = |word: &AtomicFlightWord| match word.enter(Priority::Critical.share()) {
            Ok(word) => assert!(word.count() <= word.limit(), "{word:?}"),
            Err(word) => assert!(word.count() >= word.limit(), "{word:?}"),
        };
        let threads = [(); 2].map(|()| {
            let word = word.clone();
            thread::spawn(move || {
                if word.enter(Priority::Critical.share()).is_ok_and(|word| {
                    assert!(word.count() <= word.limit(), "{word:?}");
                    true
                }) {
                    word.leave();
                }
                enters(&word);
            })
        });
        word.put_limit(1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(word.load().limit(), 1);
        assert!((1..=2).contains(&word.load().count()), "{:?}", word.load());
    });
}

#[test]
fn a_place_that_is_dropped_is_free() {
    explore("a_place_that_is_dropped_is_free", || {
        let inflight = Arc::new(Inflight::fixed(1));
        let threads = [(); 2].map(|()| {
            let inflight = inflight.clone();
            thread::spawn(move || inflight.try_enter().is_ok())
        });
        let entered = threads.map(|thread| thread.join().unwrap());
        assert!(entered.contains(&true));
        assert_eq!(inflight.in_flight(), 0);
    });
}

#[test]
fn a_place_hands_over_its_work() {
    explore("a_place_hands_over_its_work", || {
        // Its loads are plain ones under each checker, so that one may be stale.
        let (word, work) = (Arc::new(AtomicFlightWord::new(1)), Arc::new(AtomicU32::new(0)));
        assert!(word.enter(256).is_ok());
        let next = {
            let (word, work) = (word.clone(), work.clone());
            thread::spawn(move || {
                if word.enter(256).is_ok() {
                    assert_eq!(
                        work.load(Ordering::Relaxed),
                        1,
                        "the place was free before the work was done"
                    );
                }
            })
        };
        // Another limit, set in between, breaks no chain.
        let sets = {
            let word = word.clone();
            thread::spawn(move || word.put_limit(1))
        };
        work.store(1, Ordering::Relaxed);
        word.leave();
        next.join().unwrap();
        sets.join().unwrap();
    });
}

/// Halves the limit, and counts its runs and the samples.
struct Halves(Arc<(Count, Count)>);

impl Controller for Halves {
    fn next(&mut self, samples: &Samples, now: Fraction) -> Next {
        self.0.0.fetch_add(1, Relaxed);
        self.0.1.fetch_add(samples.count() as u32, Relaxed);
        Next::Set(Fraction(now.0 / 2))
    }
}

#[test]
fn one_thread_runs_the_controller_of_an_interval() {
    explore("one_thread_runs_the_controller_of_an_interval", || {
        let (clock, mock) = Clock::mock();
        let counts = Arc::<(Count, Count)>::default();
        let builder = Inflight::adaptive(Duration::from_millis(100), 16).clock(clock).start(16);
        let inflight = Arc::new(builder.controller(Halves(counts.clone())).build().unwrap());
        mock.advance(Duration::from_millis(250));
        let threads = [(); 2].map(|()| {
            let inflight = inflight.clone();
            thread::spawn(move || drop(inflight.try_enter()))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((counts.0.load(Relaxed), inflight.limit()), (1, 8));
        assert_eq!(inflight.in_flight(), 0);
    });
}

#[test]
fn a_request_of_an_earlier_limit_is_no_sample() {
    explore("a_request_of_an_earlier_limit_is_no_sample", || {
        let (clock, mock) = Clock::mock();
        let counts = Arc::<(Count, Count)>::default();
        let builder = Inflight::adaptive(Duration::from_millis(100), 16).clock(clock).start(16);
        let inflight = Arc::new(builder.controller(Halves(counts.clone())).build().unwrap());
        let early = inflight.try_enter().unwrap();
        mock.advance(Duration::from_millis(1));
        let sets = {
            let inflight = inflight.clone();
            thread::spawn(move || inflight.set_limit(8).unwrap())
        };
        let enters = {
            let inflight = inflight.clone();
            thread::spawn(move || drop(inflight.try_enter()))
        };
        sets.join().unwrap();
        early.answered();
        enters.join().unwrap();
        mock.advance(Duration::from_millis(250));
        drop(inflight.try_enter());
        assert_eq!((counts.0.load(Relaxed), counts.1.load(Relaxed)), (1, 0));
    });
}
