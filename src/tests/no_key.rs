//! The bucket of requests without a key.

use std::future::{Future, pending};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::keyed::overflow::WhenFull;
use crate::limiter::all_of::{TakeOne, all_of};
use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::rate_limiter::RateLimiter;
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Reason};

/// The bucket of requests without a key never has more than its burst, even before its first use.
#[test]
fn more_than_the_burst_of_no_key_is_too_many_at_once() {
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).initial_tokens(0).clock(Clock::mock().0);
    let limiter = limiter.build();
    let denied = limiter.shared().n(11).look(Moment(0)).unwrap_err();
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::TooMany, None));
    // The look passes on an empty bucket that is unused: such a bucket starts to earn at its first
    // take.
    assert!(limiter.shared().n(10).look(Moment(0)).is_ok());
}

#[test]
fn a_take_of_no_key_is_undone_where_another_limit_refuses() {
    let (clock, _mock) = Clock::mock();
    let builder = || RateLimiter::<u64>::builder(Quota::per_hour(10)).clock(clock.clone());
    let (limiter, full) = (builder().build(), builder().max_keys(0).when_full(WhenFull::Deny).build());
    // The look at the other limit does not show that it has no room. Only the take does.
    for left in [10, 7] {
        let denied = all_of((limiter.shared().n(4), full.key(&1))).try_acquire().unwrap_err();
        assert_eq!((denied.which(), limiter.shared().peek().remaining()), (1, left));
        assert!(limiter.shared().n(3).try_acquire().is_ok());
    }
}

/// Returns the decision of a wait, if it is there at once. `None`: the caller is in line.
fn asked<'a, B: Asked<'a, Rule = Quota>>(request: Ask<'_, B>, max_wait: u64) -> Option<Result<u64, Denied>> {
    let request = request.within(Duration::from_nanos(max_wait)).acquire_by(|_| pending::<()>());
    match pin!(request).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => Some(decision.map(|granted| granted.tokens())),
        Poll::Pending => None,
    }
}

/// An overflow bucket is that of each key in 1,024, which would start with its level.
#[test]
fn requests_without_a_key_take_no_tokens_of_any_key() {
    let builder = || RateLimiter::<u64>::builder(Quota::per_hour(2)).clock(Clock::mock().0);
    for limiter in [builder().build(), builder().max_keys(20_000).inline().unwrap().build()] {
        assert!(limiter.shared().n(2).try_acquire().is_ok() && limiter.shared().try_acquire().is_err());
        assert!((0..10_000).all(|key| limiter.try_acquire_n(&key, 2).is_ok()));
    }
    // Nor do keys without room take those.
    let limiter = builder().max_keys(0).build();
    assert!((0..10_000).filter(|key| limiter.try_acquire_n(key, 2).is_ok()).count() > 1_000);
    assert!(limiter.shared().n(2).try_acquire().is_ok());
}

/// Tokens of a key and of no key that come after a delay.
#[test]
fn a_caller_in_line_that_goes_away_leaves_its_tokens() {
    let second = 1_000_000_000;
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).clock(Clock::mock().0).build();
    assert!(limiter.try_acquire_n(&1, 10).is_ok() && limiter.shared().n(10).try_acquire().is_ok());
    for _ in 0..2 {
        assert!(
            asked(limiter.key(&1).n(5), second).is_none() && asked(limiter.shared().n(5), second).is_none()
        );
        let denied = [limiter.try_acquire(&1).unwrap_err(), limiter.shared().try_acquire().unwrap_err()];
        assert_eq!(denied.map(|denied| denied.retry_after().map(|wait| wait.as_millis())), [Some(100); 2]);
    }
    // Five come in half a second. A nanosecond later they come within the longest wait.
    let wait = |decision: Option<Result<u64, Denied>>| decision?.err()?.retry_after();
    let late = Some(Duration::from_nanos(1));
    assert_eq!(wait(asked(limiter.key(&1).n(5), second / 2 - 1)), late);
    assert_eq!(wait(asked(limiter.shared().n(5), second / 2 - 1)), late);
}

/// A caller that may not wait has tokens that are there. In shadow mode no caller waits.
#[test]
fn a_caller_without_a_key_that_may_not_wait_has_its_tokens_now() {
    for (shadow, max_wait) in [(false, 0), (true, 1_000_000_000)] {
        let builder = RateLimiter::<u64>::builder(Quota::per_second(10)).shadow(shadow);
        let limiter = builder.clock(Clock::mock().0).build();
        assert!(limiter.shared().n(8).try_acquire().is_ok());
        assert_eq!(asked(limiter.shared().n(2), max_wait), Some(Ok(2)));
        let late = asked(limiter.shared().n(3), max_wait).map(|late| late.map_err(|denied| denied.reason()));
        assert_eq!(late, Some(if shadow { Ok(3) } else { Err(Reason::Empty) }));
        assert_eq!(limiter.stats().overruled, u64::from(shadow));
    }
}

#[test]
fn tokens_of_no_key_are_given_back_and_charged_on_credit() {
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).clock(Clock::mock().0).build();
    let left = || limiter.shared().peek().remaining();
    assert!(limiter.shared().n(10).try_acquire().is_ok());
    limiter.shared().n(4).refund();
    assert_eq!(left(), 4);
    assert_eq!(limiter.shared().n(0).hold().unwrap().settle(6), 0);
    let denied = limiter.shared().try_acquire().unwrap_err();
    assert_eq!((left(), denied.retry_after().map(|wait| wait.as_millis())), (0, Some(300)));
    // An unused bucket is charged as well.
    let unused = RateLimiter::<u64>::builder(Quota::per_second(10)).clock(Clock::mock().0).build();
    assert_eq!(unused.shared().n(0).hold().unwrap().settle(3), 0);
    assert_eq!(unused.shared().peek().remaining(), 7);
}
