//! Small laws: initial tokens, jitter, functions that keep to a quota, and types that can be
//! written down.

use std::cell::Cell;
use std::time::Duration;

use tollgate::{
    AllDenied, AllOf, Ask, Clock, Hold, Jitter, Limited, Moment, Plan, Quota, RateLimiter, Reason,
    Reservation, TokenBucket,
};

use super::face::{Set, on_each};
use super::{InStore, Room, in_table};
use crate::support::{SECOND, Time, ns};

const MS: u64 = 1_000_000;
const TEN: Quota = Quota::per_second(10);

#[test]
fn a_new_bucket_starts_with_what_was_said() {
    for (initial, starts) in [(0, 0), (1, 1), (9, 9), (10, 10), (11, 10), (u64::MAX, 10)] {
        on_each(Set { initial: Some(initial), ..Set::of(TEN) }, |face, mut time| {
            let look = face.peek();
            assert_eq!((look.remaining(), look.reset_after()), (starts, ns((10 - starts) * 100 * MS)));
            assert_eq!(face.try_n(11).unwrap_err().reason(), Reason::TooMany);
            let denied = (starts < 10).then(|| face.try_n(starts + 1).unwrap_err());
            assert!(denied.is_none_or(|denied| denied.retry_after() == Some(ns(100 * MS))));
            assert!(face.try_n(starts).is_ok());
            time.advance(350 * MS);
            assert_eq!(face.up_to(100).tokens(), 3);
            time.advance(60 * SECOND);
            assert_eq!(face.peek().remaining(), 10);
        });
    }
}

/// A new key earns from its first use on: a refusal is a use, and a look is not.
#[test]
fn a_new_key_earns_from_its_first_use_on() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(TEN).initial_tokens(0).clock(clock).build();
    time.set(100 * SECOND);
    assert_eq!((limiter.peek(&1).remaining(), limiter.len()), (0, 0));
    let denied = limiter.try_acquire(&1).unwrap_err();
    assert_eq!((denied.retry_after(), limiter.len()), (Some(ns(100 * MS)), 1));
    time.advance(100 * MS - 1);
    assert!(limiter.try_acquire(&1).is_err());
    time.advance(1);
    assert!(limiter.try_acquire(&1).is_ok());
    assert_eq!(limiter.key(&2).n(3).reserve().unwrap().commit().tokens(), 3);
    assert_eq!(limiter.key(&2).reserve().unwrap().delay(), ns(400 * MS));
    assert_eq!((limiter.key(&3).n(5).acquire_up_to().tokens(), limiter.peek(&3).remaining()), (0, 0));
    // An evicted key would start empty, so keys are evicted only to make room.
    time.advance(60 * SECOND);
    assert_eq!((limiter.evict_idle(), limiter.peek(&1).remaining()), (0, 10));
}

#[test]
fn keys_that_share_earn_from_the_first_use_on() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(TEN).initial_tokens(0).clock(clock).with_places(0);
    time.set(100 * SECOND);
    assert_eq!(limiter.try_acquire(&1).unwrap_err().retry_after(), Some(ns(100 * MS)));
    time.advance(100 * MS - 1);
    assert_eq!(limiter.try_acquire(&1).unwrap_err().retry_after(), Some(ns(1)));
    time.advance(1);
    assert!(limiter.try_acquire(&1).is_ok() && limiter.try_acquire(&1).is_err());
}

/// The waits are the promised ones on a mock clock that stands, however long the sleeps take.
#[test]
fn waits_take_their_tokens_in_turn() {
    let fast = Quota::per(1, ns(1_000)).burst(2);
    let (clock, mut time) = Time::new();
    let jitter = Jitter::up_to(ns(10));
    let bucket = TokenBucket::builder(fast).max_debt(20).unwrap().jitter(jitter).clock(clock.clone()).build();
    let limiter = RateLimiter::<u64>::stored(fast).max_debt(20).unwrap().jitter(jitter).clock(clock).build();
    for _ in 0..6 {
        let taken = [bucket.ask().blocking_acquire(), limiter.key(&1).blocking_acquire()];
        assert_eq!(taken.map(|granted| granted.map(|granted| granted.tokens())), [Ok(1); 2]);
    }
    assert!(bucket.ask().n(2).blocking_acquire().is_ok() && limiter.key(&1).n(2).blocking_acquire().is_ok());
    let delays = || [bucket.ask().reserve().unwrap().delay(), limiter.key(&1).reserve().unwrap().delay()];
    assert_eq!(delays(), [ns(7_000); 2]);
    for (patience, granted) in [(0, false), (6_999, false), (7_000, true), (7_999, false), (8_000, true)] {
        assert_eq!(bucket.ask().within(ns(patience)).blocking_acquire().is_ok(), granted, "{patience} ns");
        assert_eq!(limiter.key(&1).within(ns(patience)).blocking_acquire().is_ok(), granted, "{patience} ns");
    }
    assert!(bucket.ask().n(2).within(ns(9_999)).blocking_acquire().is_err());
    assert!(limiter.key(&1).n(2).within(ns(10_000)).blocking_acquire().is_ok());
    assert_eq!(bucket.ask().n(3).blocking_acquire().unwrap_err().reason(), Reason::TooMany);
    let _ = bucket.ask().n(2).reserve().map(Reservation::commit);
    time.advance(5_000);
    assert_eq!(delays(), [ns(6_000); 2]);
}

/// The test is on the real clock, and has no verdict on the time.
#[test]
fn an_action_runs_once_for_each_grant() {
    let bucket = TokenBucket::builder(Quota::per_second(100_000).burst(1)).max_debt(0).unwrap().build();
    let calls = Cell::new(0);
    let limited = bucket.ask().limited(|()| calls.set(calls.get() + 1));
    let granted = (0..10).filter(|_| limited.blocking_call(()).is_ok()).count();
    assert_eq!(calls.get(), granted);
}

#[test]
fn what_is_refused_is_not_called() {
    let (clock, mut time) = Time::new();
    let bucket = TokenBucket::builder(TEN).clock(clock.clone()).build();
    let limiter = RateLimiter::<String>::stored(TEN).clock(clock).build();
    let calls = Cell::new(0);
    let call = |add: u64| {
        calls.set(calls.get() + add);
        calls.get()
    };
    let (one, two) = (bucket.ask().limited(call), limiter.key("ada").limited(call));
    for called in 1..=10 {
        assert_eq!((one.try_call(1), two.try_call(1)), (Ok(2 * called - 1), Ok(2 * called)));
    }
    for limited in [&one.try_call(1), &two.try_call(1)] {
        assert_eq!(limited.unwrap_err().retry_after(), Some(ns(100 * MS)));
    }
    assert_eq!((calls.get(), bucket.peek().remaining()), (20, 0));
    time.advance(100 * MS - 1);
    assert!(one.try_call(1).is_err() && two.try_call(1).is_err());
    time.advance(1);
    assert!(one.try_call(1).is_ok() && two.try_call(1).is_ok() && calls.get() == 22);
    let none = TokenBucket::builder(TEN).max_waiting(0).initial_tokens(0).clock(Clock::mock().0).build();
    assert!(none.ask().limited(call).blocking_call(1).is_err() && calls.get() == 22);
}

fn send_and_sync<T: Send + Sync>() {}
fn value<T: Copy + Send + Sync + 'static>() {}

/// A struct as users write it.
struct App {
    limiter: RateLimiter<String>,
    bucket: TokenBucket,
    plan: Plan,
}

static LIMIT: TokenBucket = TokenBucket::new(Quota::per_second(100).burst(200));

#[test]
fn limits_can_be_kept_and_sent() {
    send_and_sync::<(App, Reservation<'_>, Hold<'_>, Limited<'_, &TokenBucket, fn()>)>();
    send_and_sync::<AllOf<(Ask<'_, &TokenBucket>,)>>();
    value::<(Plan, Moment, Jitter, AllDenied)>();
    let limiter = RateLimiter::stored(TEN).build();
    let app = App { plan: limiter.plan(Quota::per_hour(5)).unwrap(), limiter, bucket: TokenBucket::new(TEN) };
    assert!(
        app.limiter.key("ada").n(5).under(&app.plan).try_acquire().is_ok()
            && app.bucket.try_acquire().is_ok()
    );
    assert!(LIMIT.try_acquire().is_ok());
    let slot: Reservation<'static> = LIMIT.ask().reserve().unwrap();
    std::thread::spawn(move || slot.commit()).join().unwrap();
}

#[test]
fn moments_are_counted_apart() {
    let (clock, mut time) = Time::new();
    let bucket = TokenBucket::builder(TEN).clock(clock).build();
    let start = bucket.now();
    time.advance(5);
    assert_eq!((bucket.now().since(start), start.since(bucket.now())), (ns(5), ns(0)));
    assert!(start < bucket.now());
}

/// A call on a clock that passes a second at each reading must not loop for ever.
#[test]
fn a_clock_that_runs_with_its_readings_does_not_hang_a_call() {
    let readings = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = readings.clone();
    let clock = Clock::from_fn(move || {
        std::time::Duration::from_secs(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    });
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(1)).clock(clock).room(0).build();
    // In a table all keys are idle at the next reading.
    assert_eq!(
        limiter.try_acquire(&1).map_err(|denied| denied.reason()).err(),
        (!in_table()).then_some(Reason::Full)
    );
    assert!(readings.load(std::sync::atomic::Ordering::Relaxed) < 10_000);
}

/// The same on the processor's counter, whose counts are rounded up.
#[test]
fn a_full_bucket_is_full_in_no_time() {
    let bucket = TokenBucket::new(Quota::per_hour(5));
    assert!(bucket.try_acquire().is_ok());
    bucket.refund(1);
    for look in [bucket.try_acquire_n(0), bucket.try_acquire_n(0)] {
        assert_eq!(look.map(|granted| granted.reset_after()), Ok(Duration::ZERO));
    }
}

/// Beyond 2^63 - 1 ns a clock stands still, and a change of quota mints nothing.
#[test]
fn a_clock_stands_still_at_its_end() {
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    mock.advance(std::time::Duration::from_nanos(u64::MAX / 2 + 2));
    let granted = (0..100).map(|round| {
        let granted = bucket.ask().n(10).acquire_up_to().tokens();
        bucket.set_rule(Quota::per_second(10 + round % 2).burst(10)).unwrap();
        mock.advance(std::time::Duration::from_nanos(1));
        granted
    });
    assert_eq!(granted.sum::<u64>(), 10);
}
