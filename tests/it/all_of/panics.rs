// promise: law
//! Panics in a take of several limits.

use super::*;

/// A key that fails when a limiter that has no such key makes one of it.
#[derive(PartialEq, Eq, Hash)]
struct Unowned;

impl Equivalent<u64> for Unowned {
    fn equivalent(&self, _: &u64) -> bool {
        false
    }
}

impl ToKey<u64> for Unowned {
    fn to_key(&self) -> u64 {
        panic!("no key")
    }
}

/// Each function of the user that the take of a limit calls may panic.
#[test]
fn a_panic_in_a_take_leaves_no_limit_taken() {
    let (clock, _time) = Time::new();
    let (quota, window) = (Quota::per_hour(6), Window::per_hour(6));
    let ends = [(); 2].map(|()| TokenBucket::builder(quota).clock(clock.clone()).build());
    let hook = |_: &_| panic!("a hook");
    let bucket = TokenBucket::builder(quota).clock(clock.clone()).on_decision(hook).build();
    let counter = WindowCounter::builder(window).clock(clock.clone()).on_decision(hook).build();
    let keyed = RateLimiter::<u64>::stored(quota).clock(clock.clone()).on_decision(hook).build();
    let windows = RateLimiter::<u64, _>::builder(window).clock(clock.clone()).on_decision(hook).build();
    let plain = RateLimiter::<u64>::builder(quota).clock(clock.clone()).build();
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let planned = RateLimiter::<u64>::stored(quota).clock(clock).plan_for(move |_| {
        // The look has the first call.
        assert!(count.fetch_add(1, Relaxed) != 1, "a function of plans");
        None
    });
    let planned = planned.build();
    let (one, two) = (keyed.key(&1).n(2), windows.key(&1).n(2));
    let panics: [&dyn Tokens; 7] = [
        &bucket.ask().n(2),
        &bucket.ask().n(2).keep(10),
        &counter.ask().n(2),
        &one,
        &two,
        &planned.key(&1),
        &plain.key(&Unowned),
    ];
    for (which, panics) in panics.into_iter().enumerate() {
        let (first, last) = (ends[0].ask(), ends[1].ask());
        for all in [[&first as &dyn Tokens, panics, &last], [&first, &last, panics]] {
            calls.store(0, Relaxed);
            let take = || _ = all_of(all).try_acquire();
            assert!(catch_unwind(AssertUnwindSafe(take)).is_err(), "{which}");
            assert_eq!(left(&ends), [6, 6], "{which}");
        }
    }
    let lefts = [bucket.peek(), counter.peek(), keyed.peek(&1), windows.peek(&1), planned.peek(&1)];
    assert_eq!(lefts.map(|left| left.remaining()), [6; 5]);
    assert!(plain.is_empty() && planned.is_empty());
}

/// A reservation and a hold are not made, and a take that returns no guard stays.
#[test]
fn a_panic_of_a_hook_gives_back_what_a_guard_would_hold() {
    let (clock, _time) = Time::new();
    let quota = Quota::per_hour(6);
    let hook = |_: &_| panic!("a hook");
    let bucket = TokenBucket::builder(quota).clock(clock.clone()).on_decision(hook).build();
    let keyed = RateLimiter::<u64>::stored(quota).clock(clock).on_decision(hook).build();
    let panics = |call: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    panics(&|| drop(bucket.ask().n(4).reserve()));
    panics(&|| drop(bucket.ask().n(4).hold()));
    panics(&|| drop(keyed.key(&1).n(4).reserve()));
    panics(&|| drop(keyed.key(&1).n(4).hold()));
    assert_eq!((bucket.peek().remaining(), keyed.peek(&1).remaining()), (6, 6));
    panics(&|| _ = bucket.try_acquire_n(4));
    panics(&|| _ = keyed.try_acquire_n(&1, 4));
    assert_eq!((bucket.peek().remaining(), keyed.peek(&1).remaining()), (2, 2));
}
