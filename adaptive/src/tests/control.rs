// promise: inflight
//! A limit that adapts, on a mock clock: the windows that its controller sees, and the limits that
//! its decisions become.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{Controller, Fraction, Inflight, InflightBuilder, Next, Outcome, Samples};
use tollgate::{Clock, MockClock};

const INTERVAL: Duration = Duration::from_millis(250);
const TARGET: Duration = Duration::from_millis(300);

/// Keeps each window, and decides by a list. At its end the limit stays.
struct Listed {
    list: VecDeque<Next>,
    samples: Arc<Mutex<Vec<Samples>>>,
}

impl Controller for Listed {
    fn next(&mut self, samples: &Samples, _: Fraction) -> Next {
        self.samples.lock().unwrap().push(samples.clone());
        self.list.pop_front().unwrap_or(Next::Stay)
    }
}

struct Scene {
    limit: Inflight,
    mock: MockClock,
    samples: Arc<Mutex<Vec<Samples>>>,
}

impl Scene {
    fn new(start: u32, list: &[Next], options: impl FnOnce(InflightBuilder) -> InflightBuilder) -> Scene {
        let ((clock, mock), samples) = (Clock::mock(), Arc::default());
        let controller = Listed { list: list.iter().copied().collect(), samples: Arc::clone(&samples) };
        let builder = Inflight::adaptive(TARGET, 1_000).start(start).clock(clock).controller(controller);
        Scene { limit: options(builder).build().unwrap(), mock, samples }
    }

    /// Lets an interval pass, and a request that runs the controller. Returns the limit.
    fn decide(&self) -> u32 {
        self.mock.advance(INTERVAL);
        drop(self.limit.try_enter());
        self.limit.limit()
    }

    fn decisions(&self) -> usize {
        self.samples.lock().unwrap().len()
    }

    fn last(&self) -> Samples {
        self.samples.lock().unwrap().last().expect("the controller has run").clone()
    }
}

const ALL: Next = Next::Set(Fraction::ALL);
const LEAST: Next = Next::Set(Fraction(0));

/// A rise by one of 64 keeps the samples of the requests before it. One by two of 65 does not.
#[test]
fn a_small_rise_is_no_change_of_the_limit() {
    // A little more, as a share is rounded down.
    let to = |limit: u32| Next::Set(Fraction::new(16 * limit + 1, 16_000));
    let scene = Scene::new(64, &[to(65), to(67)], |builder| builder);
    let mut flights: Vec<_> = (0..3).map(|_| scene.limit.try_enter().unwrap()).collect();
    for (limit, samples) in [(65, 0), (67, 1), (67, 0)] {
        assert_eq!((scene.decide(), scene.last().count()), (limit, samples));
        flights.pop().into_iter().for_each(|flight| flight.answered());
    }
}

/// Small rises are a change together, once they are more than a sixteenth.
#[test]
fn many_small_rises_are_a_change_of_the_limit() {
    let to = |limit: u32| Next::Set(Fraction::new(16 * limit + 1, 16_000));
    let list: Vec<_> = (161..=172).map(to).collect();
    let scene = Scene::new(160, &list, |builder| builder);
    let mut flights: Vec<_> = (0..14).map(|_| scene.limit.try_enter().unwrap()).collect();
    let mut samples = || {
        flights.pop().into_iter().for_each(|flight| flight.answered());
        scene.decide();
        scene.last().count()
    };
    // From 160 to 170, and one more.
    assert_eq!([(); 11].map(|()| samples()), [1; 11]);
    assert_eq!(samples(), 0);
}

/// A window without an answer is short after a small rise, whatever the time since the last change.
#[test]
fn a_limit_is_not_taken_for_stalled_after_a_small_rise() {
    let scene @ (limit, mock) = &ruled(100, |builder| builder);
    mock.advance(Duration::from_secs(3));
    assert_eq!(answers(scene, &[(100, 260)]), 101);
    let _flights: Vec<_> = (0..101).map(|_| limit.try_enter().unwrap()).collect();
    for _ in 0..5 {
        assert!(limit.try_enter().is_err());
        mock.advance(INTERVAL);
        // A thread looks at the clock at one refusal in 64.
        (0..64).for_each(|_| drop(limit.try_enter()));
        assert_eq!((limit.limit(), limit.stats().stalled), (101, 0));
    }
    mock.advance(INTERVAL);
    (0..64).for_each(|_| drop(limit.try_enter()));
    assert_eq!((limit.limit(), limit.stats().stalled), (50, 1));
}

/// One request of each outcome, and one that is given up after the target.
#[test]
fn only_requests_since_the_last_change_are_samples() {
    let scene = Scene::new(8, &[LEAST], |builder| builder);
    for (count, since) in [(0, "before the change"), (3, "at its reading")] {
        let flights = [(); 4].map(|()| scene.limit.try_enter().unwrap());
        if count == 0 {
            assert_eq!(scene.decide(), 4);
        }
        scene.mock.advance(TARGET + Duration::from_nanos(1));
        let [answered, overloaded, failed, given_up] = flights;
        drop(given_up);
        failed.failed();
        overloaded.overloaded();
        answered.answered();
        assert_eq!(scene.decide(), 4);
        let samples = scene.last();
        assert_eq!((samples.count(), samples.failed()), (count, 1), "{since}: {samples:?}");
        assert_eq!((samples.answered(), samples.overloaded()), (count / 3, count / 3 * 2), "{since}");
        // The next four enter at the reading of a change.
        if count == 0 {
            scene.limit.set_limit(4).unwrap();
        }
    }
}

#[test]
fn a_change_is_counted_by_its_reason() {
    let list = [ALL, LEAST, LEAST, Next::Return, Next::Stay];
    let scene = Scene::new(80, &list, |builder| builder);
    let counts = |answers: usize| {
        (0..answers).for_each(|_| scene.limit.try_enter().unwrap().answered());
        scene.decide();
        let stats = scene.limit.stats();
        [stats.rose, stats.fell, stats.stalled, stats.in_vain]
    };
    assert_eq!(counts(0), [1, 0, 0, 0]);
    assert_eq!(counts(1), [1, 1, 0, 0]);
    assert_eq!(counts(0), [1, 1, 1, 0]);
    assert_eq!(counts(1), [1, 1, 1, 1]);
    assert_eq!(counts(1), [1, 1, 1, 1]);
}

/// The limit is kept in sixteenths of a place: each rise is an eighth and one of all of it.
#[test]
fn the_parts_of_a_place_are_kept_from_change_to_change() {
    let scene = Scene::new(1, &[ALL; 5], |builder| builder);
    assert_eq!([(); 5].map(|()| scene.decide()), [2, 3, 4, 6, 8]);
    let scene = Scene::new(5, &[LEAST; 3], |builder| builder);
    assert_eq!([(); 3].map(|()| scene.decide()), [2, 1, 1]);
}

/// The requests in flight at the beginning of a window are in its peak.
#[test]
fn a_window_has_its_own_peak_refusals_and_length() {
    let scene = Scene::new(6, &[], |builder| builder);
    let mut flights: Vec<_> = (0..6).map(|_| scene.limit.try_enter().unwrap()).collect();
    assert!(scene.limit.try_enter().is_err());
    let leave = |flights: &mut Vec<_>, millis| {
        scene.mock.advance(Duration::from_millis(millis));
        drop(flights.pop());
        let samples = scene.last();
        (samples.peak(), samples.refused(), samples.window().as_millis())
    };
    assert_eq!(leave(&mut flights, 260), (6, true, 260));
    assert_eq!(leave(&mut flights, 270), (5, false, 270));
    assert_eq!(leave(&mut flights, 250), (4, false, 250));
    flights.push(scene.limit.try_enter().unwrap());
    assert_eq!(leave(&mut flights, 250), (4, false, 250));
    assert_eq!(leave(&mut flights, 250), (3, false, 250));
}

#[test]
fn a_limit_that_is_set_is_within_its_bounds_and_the_controller_goes_on_from_it() {
    let scene = Scene::new(8, &[ALL], |builder| builder.floor(4));
    for outside in [0, 2, 3, 1_001] {
        assert!(scene.limit.set_limit(outside).is_err(), "{outside}");
    }
    scene.limit.set_limit(4).unwrap();
    scene.limit.set_limit(40).unwrap();
    assert_eq!(scene.limit.limit(), 40);
    assert_eq!(scene.decide(), 46);
}

/// A decision for the limit in force is neither a rise nor a fall.
#[test]
fn a_return_is_to_the_limit_before_the_latest_falls() {
    let same = Next::Set(Fraction::HALF);
    let scene = Scene::new(1_000, &[same, same, Next::Return], |builder| builder);
    assert_eq!([(); 3].map(|()| scene.decide()), [500, 500, 1_000]);
}

/// The default controller has fallen, and would return after a second fall in vain: to the limit
/// that was set since, not to the one before.
#[test]
fn a_fall_from_before_a_limit_that_was_set_is_forgotten() {
    let scene @ (limit, _) = &ruled(400, |builder| builder);
    assert_eq!(answers(scene, &[(400, 900)]), 200);
    limit.set_limit(40).unwrap();
    assert_eq!([40, 20].map(|count| answers(scene, &[(count, 900)])), [20, 10]);
    assert_eq!(limit.stats().in_vain, 0);
    // A quarter of the one that was set.
    assert_eq!((answers(scene, &[(10, 900)]), limit.stats().in_vain), (40, 1));
}

#[test]
fn a_return_is_to_no_limit_from_before_one_that_was_set() {
    let scene = Scene::new(1_000, &[LEAST, Next::Return, LEAST, Next::Return], |builder| builder);
    assert_eq!(scene.decide(), 500);
    scene.limit.set_limit(20).unwrap();
    assert_eq!([(); 3].map(|()| scene.decide()), [20, 10, 20]);
}

#[test]
fn a_limit_of_one_may_rise_to_three_and_one_of_three_fall_to_one() {
    let to = |sixteenths: u32| Next::Set(Fraction::new(4 * sixteenths + 1, 64_000));
    let scene = Scene::new(1, &[to(31), to(50), to(48), to(24), to(16)], |builder| builder);
    assert_eq!([(); 5].map(|()| scene.decide()), [1, 3, 3, 1, 1]);
}

struct Panics;

impl Controller for Panics {
    fn next(&mut self, _: &Samples, _: Fraction) -> Next {
        panic!("the controller fails");
    }
}

/// A controller that panics loses no place. It does not run in a thread that panics already: a
/// second panic would end the process.
#[test]
fn a_controller_that_panics_loses_no_place_and_never_ends_the_process() {
    let (clock, mock) = Clock::mock();
    let builder = Inflight::adaptive(TARGET, 10).start(10).clock(clock).controller(Panics);
    let limit = builder.build().unwrap();
    let text = |work: &dyn Fn()| {
        let panicked = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
        *panicked.downcast::<&str>().unwrap()
    };
    let fails = || {
        let _flight = limit.try_enter().unwrap();
        mock.advance(INTERVAL);
        panic!("the request fails");
    };
    assert_eq!(text(&fails), "the request fails");
    assert_eq!(limit.in_flight(), 0);
    // The next call that is due runs it.
    assert_eq!(text(&|| drop(limit.try_enter())), "the controller fails");
    let leaves = || {
        let flight = limit.try_enter().unwrap();
        mock.advance(INTERVAL);
        flight.answered();
    };
    assert_eq!(text(&leaves), "the controller fails");
    assert_eq!((limit.in_flight(), limit.limit()), (0, 10));
    assert!(limit.try_enter().is_ok());
}

/// The controller runs between the look at the limit and the entry, and lowers the limit.
#[test]
fn a_request_for_which_the_place_is_gone_counts_as_refused() {
    let scene = Scene::new(2, &[LEAST], |builder| builder);
    let _held = scene.limit.try_enter().unwrap();
    scene.mock.advance(INTERVAL);
    assert_eq!(scene.limit.try_enter().unwrap_err().limit(), 1);
    assert!(!scene.last().refused());
    scene.limit.set_limit(2).unwrap();
    scene.decide();
    assert!(!scene.last().refused(), "the window of the new limit has no refusal");
    let scene = Scene::new(2, &[LEAST], |builder| builder);
    let held = scene.limit.try_enter().unwrap();
    scene.mock.advance(INTERVAL);
    assert!(scene.limit.try_enter().is_err());
    scene.mock.advance(INTERVAL);
    drop(held);
    assert!(scene.last().refused());
}

/// A lost race for the word is no refusal.
#[test]
fn two_threads_never_refuse_each_other_below_the_limit() {
    let limit = Inflight::fixed(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..200_000).for_each(|_| drop(limit.try_enter().unwrap())));
        }
    });
    assert_eq!(limit.in_flight(), 0);
}

/// No request leaves, and each is refused: the refusals run the controller.
#[test]
fn sixty_four_refusals_run_the_controller_of_a_full_limit() {
    let scene = Scene::new(1, &[], |builder| builder);
    let _held = scene.limit.try_enter().unwrap();
    for round in 1..4 {
        (0..64).for_each(|_| assert!(scene.limit.try_enter().is_err()));
        scene.mock.advance(INTERVAL);
        (0..64).for_each(|_| assert!(scene.limit.try_enter().is_err()));
        assert_eq!(scene.decisions(), round);
        assert!(scene.last().refused());
    }
}

#[test]
fn the_controller_runs_once_an_interval_and_soon_after_it_waited() {
    let scene = Scene::new(8, &[Next::Wait], |builder| builder);
    let decisions = |millis| {
        scene.mock.advance(Duration::from_millis(millis));
        (0..3).for_each(|_| drop(scene.limit.try_enter()));
        scene.decisions()
    };
    assert_eq!(decisions(249), 0);
    assert_eq!(decisions(1), 1);
    // 31.25 ms after a decision to wait, and 250 ms after another one.
    assert_eq!(decisions(31), 1);
    assert_eq!(decisions(1), 2);
    assert_eq!(decisions(249), 2);
    assert_eq!(decisions(1), 3);
}

/// With fewer requests in flight than the floor, a return is to the floor.
#[test]
fn a_return_stays_within_the_floor() {
    let (clock, mock) = Clock::mock();
    let limit = Inflight::adaptive(TARGET, 100).start(4).floor(4).clock(clock).build().unwrap();
    for _ in 0..12 {
        let flight = limit.try_enter().unwrap();
        mock.advance(Duration::from_millis(400));
        flight.answered();
        assert_eq!(limit.limit(), 4);
    }
    assert!(limit.target().is_some_and(|target| target > TARGET), "the falls were in vain");
}

/// The first outcome of a request counts. The end of a request that has an outcome is no sample.
#[test]
fn a_request_is_one_sample_of_its_first_outcome() {
    let scene = Scene::new(8, &[], |builder| builder);
    let mut noted = scene.limit.try_enter().unwrap();
    scene.mock.advance(Duration::from_millis(20));
    assert_eq!(noted.note(Outcome::Answered), Some(Duration::from_millis(20)));
    assert_eq!(noted.note(Outcome::Overloaded), None);
    scene.mock.advance(2 * TARGET);
    noted.end(Outcome::Overloaded);
    let mut dropped = scene.limit.try_enter().unwrap();
    dropped.note(Outcome::Failed);
    scene.mock.advance(2 * TARGET);
    drop(dropped);
    scene.decide();
    let samples = scene.samples.lock().unwrap().clone();
    let sum = |of: fn(&Samples) -> u64| samples.iter().map(of).sum::<u64>();
    assert_eq!([Samples::answered, Samples::overloaded, Samples::failed].map(sum), [1, 0, 1]);
}

/// Returns a limit by the rule of the crate, on a mock clock.
fn ruled(start: u32, options: impl FnOnce(InflightBuilder) -> InflightBuilder) -> (Inflight, MockClock) {
    let (clock, mock) = Clock::mock();
    (options(Inflight::adaptive(TARGET, 1_000).start(start).clock(clock)).build().unwrap(), mock)
}

/// Enters as many requests as are answered, each number of them after its milliseconds, and lets an
/// interval pass. Returns the limit.
fn answers((limit, mock): &(Inflight, MockClock), latencies: &[(u32, u64)]) -> u32 {
    let all = latencies.iter().map(|(count, _)| count).sum();
    let mut flights: Vec<_> = (0..all).map(|_| limit.try_enter().unwrap()).collect();
    let mut passed = 0;
    for (count, millis) in latencies {
        mock.advance(Duration::from_millis(millis - passed));
        passed = *millis;
        flights.drain(..*count as usize).for_each(|flight| flight.answered());
    }
    mock.advance(INTERVAL);
    drop(limit.try_enter());
    limit.limit()
}

#[test]
fn the_numbers_of_the_rule_are_those_of_the_builder() {
    // A tenth of the answers are fast.
    let mixed: &[_] = &[(4, 100), (36, 400)];
    assert!(answers(&ruled(40, |builder| builder), mixed) < 40);
    assert!(answers(&ruled(40, |builder| builder.quantile(50)), mixed) > 40);
    // Two samples are none too few.
    assert_eq!(answers(&ruled(2, |builder| builder), &[(2, 100)]), 2);
    assert_eq!(answers(&ruled(2, |builder| builder.samples(2)), &[(2, 100)]), 3);
    let seldom = ruled(40, |builder| builder.interval(Duration::from_secs(1)));
    assert_eq!(answers(&seldom, &[(40, 100)]), 40);
    seldom.1.advance(Duration::from_millis(650));
    drop(seldom.0.try_enter());
    assert!(seldom.0.limit() > 40);
    // Answers that no limit makes faster: seven quarters of them, within the slack.
    for (slack, target) in [(1, 300..=300), (2, 600..=600), (4, 640..=710)] {
        let scene = ruled(4, |builder| builder.slack(slack));
        let target_in_force = || scene.0.target().unwrap();
        for _ in 0..40 {
            if target_in_force() == TARGET {
                answers(&scene, &[(scene.0.limit(), 400)]);
            }
        }
        assert!(target.contains(&target_in_force().as_millis()), "{slack}: {:?}", target_in_force());
    }
}

#[test]
fn a_refusal_tells_the_limit_and_the_requests_in_flight() {
    let (limit, _) = ruled(3, |builder| builder);
    let _flights = [(); 3].map(|()| limit.try_enter().unwrap());
    let refused = limit.try_enter().unwrap_err();
    assert_eq!((refused.limit(), refused.in_flight()), (3, 3));
    assert_eq!(Outcome::ALL.map(Outcome::name), ["answered", "overloaded", "failed"]);
}
