//! The bucket of requests without a key.

use crate::keyed::overflow::WhenFull;
use crate::limiter::all_of::all_of;
use crate::limiter::all_of::sealed::Limit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::rate::Quota;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::Reason;

/// The bucket of requests without a key never has more than its burst, even before its first use.
#[test]
fn more_than_the_burst_of_no_key_is_too_many_at_once() {
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).start_empty().clock(Clock::mock().0);
    let limiter = limiter.build();
    let denied = limiter.no_key(11).look(Moment(0)).unwrap_err();
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::TooMany, None));
    // The look passes on an empty bucket that is unused: such a bucket starts to earn at its first
    // take.
    assert!(limiter.no_key(10).look(Moment(0)).is_ok());
}

#[test]
fn a_take_of_no_key_is_undone_where_another_limit_refuses() {
    let (clock, _mock) = Clock::mock();
    let builder = || RateLimiter::<u64>::builder(Quota::per_hour(10)).clock(clock.clone());
    let (limiter, full) = (builder().build(), builder().max_keys(0).when_full(WhenFull::Deny).build());
    // The look at the other limit does not show that it has no room. Only the take does.
    for left in [10, 7] {
        let denied = all_of((limiter.no_key(4), full.key(&1))).try_acquire().unwrap_err();
        assert_eq!((denied.which(), limiter.no_key(0).peek().remaining()), (1, left));
        assert!(limiter.no_key(3).take().is_ok());
    }
}
