//! The bucket of requests without a key.

use std::task::Waker;

use crate::keyed::overflow::WhenFull;
use crate::limiter::all_of::{TakeOne, all_of};
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::waiting::NextStep;
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

/// Tokens of a key and of no key that come after a delay, and tokens of a key that are there.
#[test]
fn a_place_in_line_gives_its_tokens_back_unless_it_is_used() {
    let second = 1_000_000_000;
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).clock(Clock::mock().0).build();
    assert!(limiter.try_acquire_n(&1, 10).is_ok() && limiter.shared().n(10).try_acquire().is_ok());
    let waits = || {
        let denied = [limiter.try_acquire(&1).unwrap_err(), limiter.shared().try_acquire().unwrap_err()];
        denied.map(|denied| denied.retry_after().map(|wait| wait.as_millis()))
    };
    let places =
        |max_wait| [Some(&1), None].map(|key| limiter.place_of(key, None, 5, (max_wait, usize::MAX)));
    for used in [false, true] {
        assert_eq!(waits(), [Some(100); 2]);
        for (granted, mut place) in places(second).map(Result::unwrap) {
            assert_eq!((granted.tokens(), place.told().as_millis()), (5, 500));
            assert!(format!("{place:?}").contains("told: 500ms"));
            if used {
                // Its timer is over.
                let step = place.poll(true, Waker::noop());
                assert!(matches!(step, Some(NextStep::Done(Ok(_)))), "{step:?}");
            }
            drop(place);
        }
    }
    assert_eq!(waits(), [Some(600); 2]);
    // Five more come in a second. A nanosecond later they come within the longest wait.
    for refused in places(second - 1) {
        assert_eq!(refused.unwrap_err().retry_after().map(|wait| wait.as_nanos()), Some(1));
    }
    for (used, left) in [(false, 10), (true, 6)] {
        let (granted, place) = limiter.place_now(&2, None, 4).unwrap();
        assert_eq!((granted.remaining(), place.told().as_nanos()), (6, 0));
        if used {
            place.commit()
        } else {
            drop(place)
        }
        assert_eq!(limiter.peek(&2).remaining(), left);
    }
    assert!(limiter.place_now(&2, None, 7).is_err());
}

/// A place that may not wait has tokens that are there. In shadow mode no caller waits.
#[test]
fn a_place_without_a_key_that_may_not_wait_has_its_tokens_now() {
    for (shadow, max_wait) in [(false, 0), (true, 1_000_000_000)] {
        let builder = RateLimiter::<u64>::builder(Quota::per_second(10)).shadow(shadow);
        let limiter = builder.clock(Clock::mock().0).build();
        assert!(limiter.shared().n(8).try_acquire().is_ok());
        let place = |n| {
            let (_, place) = limiter.place_of(None, None, n, (max_wait, usize::MAX))?;
            let told = place.told().as_nanos();
            place.commit();
            Ok::<_, Denied>(told)
        };
        assert_eq!(place(2), Ok(0));
        let late = place(3).map_err(|denied| denied.reason());
        assert_eq!(late, if shadow { Ok(0) } else { Err(Reason::Empty) });
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
