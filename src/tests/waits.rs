// promise: law
//! The time for which a caller waits: from its moment, in or out of line, with a jitter.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::limiter::limit::TokenBucket;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::wait::{NextStep, Waiter};
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock, Moment};
use crate::time::jitter::Jitter;
use crate::word::decision::Reason;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns a bucket of 10 a second with `left` tokens.
fn bucket(left: u64, jitter: Jitter) -> (TokenBucket, MockClock) {
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).jitter(jitter).build();
    assert!(bucket.try_acquire_n(10 - left).is_ok());
    (bucket, mock)
}

#[test]
fn a_caller_with_a_kept_part_tries_again_for_the_rest_of_its_time() {
    let (bucket, mock) = bucket(5, Jitter::NONE);
    let ask = bucket.ask().keep(50).within(millis(150));
    let mut waiter = Waiter::new(ask);
    assert_eq!(waiter.poll(false, Waker::noop()), NextStep::Sets(millis(100)));
    mock.advance(millis(100));
    // The other request has no kept part, and is served first.
    assert!(bucket.try_acquire().is_ok());
    let NextStep::Done(Err(denied)) = waiter.poll(true, Waker::noop()) else { panic!("50 ms are left") };
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::Deadline, Some(millis(50))));
}

#[test]
fn a_jitter_is_no_longer_than_the_caller_is_ready_to_wait() {
    let hour = Duration::from_secs(3_600);
    for _ in 0..100 {
        let (bucket, _) = bucket(5, Jitter::up_to(hour));
        let mut waiter = Waiter::new(bucket.ask().keep(50).within(millis(150)));
        let step = waiter.poll(false, Waker::noop());
        assert!(matches!(step, NextStep::Sets(wait) if wait <= millis(150)), "{step:?}");
    }
}

#[test]
fn a_wait_counts_from_the_moment_of_the_request() {
    let (bucket, mock) = bucket(0, Jitter::NONE);
    let begun = bucket.now();
    mock.advance(millis(100));
    assert!(bucket.try_acquire().is_ok());
    for (within, waits) in [(199, false), (200, true)] {
        let step = Waiter::new(bucket.ask().at(begun).within(millis(within))).poll(false, Waker::noop());
        assert_eq!(matches!(step, NextStep::Sets(_)), waits, "{within} ms: {step:?}");
    }
}

#[test]
fn a_hold_without_a_key_that_is_settled_wakes_the_caller_in_line() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).clock(Clock::mock().0).build();
    let hold = limiter.shared().n(10).hold().unwrap();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut waiter = Waiter::new(limiter.shared().n(5));
    assert_eq!(waiter.poll(false, &waker), NextStep::Sets(millis(500)));
    assert_eq!(hold.settle(0), 0);
    assert!(woken.0.load(Relaxed));
    assert!(matches!(waiter.poll(false, &waker), NextStep::Done(Ok(_))));
}

/// The rate falls, so that the timer ends while its caller still waits. A timer that is over is not
/// polled again, as one that is an `async` block would panic.
#[test]
fn a_timer_that_ends_too_early_is_replaced() {
    let (bucket, mock) = bucket(0, Jitter::NONE);
    let sleep = |wait| {
        let (begun, mut over) = (bucket.now(), false);
        let now = || bucket.now();
        poll_fn(move |_| {
            assert!(!over, "a timer of {wait:?} is polled after its end");
            over = now().since(begun) >= wait;
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    let mut caller = pin!(bucket.ask().acquire_by(sleep));
    let mut polls = || caller.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polls().is_pending());
    bucket.set_rule(Quota::per_second(5).burst(10)).unwrap();
    for _ in 0..4 {
        mock.advance(millis(50));
        let due = bucket.now().since(Moment(0)) >= millis(200);
        // Polls that no event asked for do no harm.
        assert!(due || polls().is_pending() && polls().is_pending());
    }
    assert!(matches!(polls(), Poll::Ready(Ok(_))));
}
