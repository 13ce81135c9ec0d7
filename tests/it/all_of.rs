// promise: law
//! Several limits that one call takes together: all of them, or none.

mod panics;

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tollgate::{
    Clock, Equivalent, Quota, RateLimiter, Reason, ToKey, TokenBucket, Tokens, WhenFull, Window,
    WindowCounter, all_of,
};

use super::{InStore, Room};
use crate::support::{SECOND, Time, ns};

const MS: u64 = 1_000_000;

fn buckets<const N: usize>(quotas: [Quota; N]) -> ([TokenBucket; N], Time) {
    let (clock, time) = Time::new();
    (quotas.map(|quota| TokenBucket::builder(quota).clock(clock.clone()).build()), time)
}

fn left<const N: usize>(buckets: &[TokenBucket; N]) -> [u64; N] {
    buckets.each_ref().map(|bucket| bucket.peek().remaining())
}

const TEN: Quota = Quota::per_second(10);

#[test]
fn all_are_taken_or_none() {
    let (three, mut time) = buckets([TEN, Quota::per_second(5), Quota::per_second(2)]);
    let [a, b, c] = &three;
    let all = all_of((a.ask().n(2), b.ask(), c.ask()));
    assert_eq!(all.try_acquire().unwrap().remaining(), 1, "of the tightest");
    assert_eq!(all.try_acquire().unwrap().remaining(), 0);
    let before = three.each_ref().map(TokenBucket::peek);
    let denied = all.try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.retry_after()), (2, Some(ns(500 * MS))));
    assert_eq!((denied.denied().reason(), denied.denied().remaining()), (Reason::Empty, 0));
    assert_eq!(denied.to_string(), "limit 2: not enough tokens: 0 left, retry after 500ms");
    assert_eq!(three.each_ref().map(TokenBucket::peek), before, "nothing was taken");
    time.advance(500 * MS - 1);
    assert_eq!(all.try_acquire().unwrap_err().retry_after(), Some(ns(1)));
    time.advance(1);
    assert!(all.try_acquire().is_ok());
    assert_eq!(left(&three), [8, 4, 0]);
}

#[test]
fn the_answer_is_that_of_the_limit_that_takes_longest() {
    let (three, _time) = buckets([Quota::per_second(4), Quota::per_second(1), Quota::per_second(2)]);
    let [a, b, c] = &three;
    assert!(a.try_acquire_n(4).is_ok() && b.try_acquire().is_ok() && c.try_acquire_n(2).is_ok());
    let said = |denied: tollgate::AllDenied| (denied.which(), denied.retry_after());
    assert_eq!(said(all_of((a.ask(), b.ask(), c.ask())).try_acquire().unwrap_err()), (1, Some(ns(SECOND))));
    assert_eq!(said(all_of((b.ask(), a.ask(), c.ask())).try_acquire().unwrap_err()), (0, Some(ns(SECOND))));
    assert_eq!(
        said(all_of((a.ask().n(4), b.ask(), c.ask())).try_acquire().unwrap_err()),
        (0, Some(ns(SECOND))),
        "the first of equals"
    );
    assert_eq!(said(all_of((&a.ask(), &b.ask())).try_acquire().unwrap_err()), (1, Some(ns(SECOND))));
    // A wait of `None`, for never, is the longest.
    assert_eq!(said(all_of((b.ask(), c.ask().n(3), a.ask())).try_acquire().unwrap_err()), (1, None));
    assert_eq!(said(all_of((c.ask().n(3), b.ask().n(2))).try_acquire().unwrap_err()), (0, None));
    assert_eq!(left(&three), [0, 0, 0]);
}

#[test]
fn limits_come_in_tuples_arrays_and_slices() {
    let (eight, _time) = buckets([TEN; 8]);
    let limits = eight.each_ref().map(|bucket| bucket.ask());
    let [a, b, c, d, e, f, g, h] = limits;
    assert!(all_of((a,)).try_acquire().is_ok());
    assert!(all_of((a, b, c, d, e, f, g, h)).try_acquire().is_ok());
    assert!(all_of(limits).try_acquire().is_ok());
    assert!(all_of(&limits).try_acquire().is_ok());
    assert!(all_of(&limits[..]).try_acquire().is_ok());
    let by_name: [&dyn Tokens; 8] = limits.each_ref().map(|limit| limit as &dyn Tokens);
    assert!(all_of(by_name).try_acquire().is_ok());
    assert!(all_of(&by_name[1..]).try_acquire().is_ok());
    assert_eq!(left(&eight), [4, 4, 4, 4, 4, 4, 4, 4]);

    let heavy = eight.each_ref().map(|bucket| bucket.ask().n(4));
    assert!(h.try_acquire().is_ok());
    assert_eq!(all_of(heavy).try_acquire().unwrap_err().which(), 7);
    let [a, b, c, d, e, f, g, h] = heavy;
    assert_eq!(all_of((a, b, c, d, e, f, g, h)).try_acquire().unwrap_err().which(), 7);
    assert_eq!(left(&eight), [4, 4, 4, 4, 4, 4, 4, 3]);
}

#[test]
fn no_limits_grant_everything() {
    let none: [&dyn Tokens; 0] = [];
    let granted = all_of(&none[..]).try_acquire().unwrap();
    assert_eq!((granted.tokens(), granted.remaining(), granted.reset_after()), (0, u64::MAX, ns(0)));
    assert!(all_of(none).try_acquire().is_ok());
}

/// Each mention is looked at by itself, and the second finds the tokens that the first left. A
/// refusal gives the taken tokens back to the unit.
#[test]
fn a_limit_that_is_named_twice_is_taken_twice() {
    let ([bucket], mut time) = buckets([TEN]);
    let (key, other_key) = (1, 2);
    let limiter = RateLimiter::<u64>::stored(Quota::per_hour(10)).build();
    assert_eq!(all_of((bucket.ask().n(4), bucket.ask().n(4))).try_acquire().unwrap().remaining(), 2);
    time.advance(150 * MS);
    let before = bucket.peek();
    let denied = all_of((bucket.ask().n(2), bucket.ask().n(2))).try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.denied().remaining()), (1, 1));
    assert_eq!(bucket.peek(), before);
    let twice = all_of([limiter.key(&key).n(6), limiter.key(&key).n(6)]);
    assert_eq!(twice.try_acquire().unwrap_err().which(), 1);
    assert_eq!(limiter.peek(&key).remaining(), 10);
    assert!(all_of([limiter.key(&key).n(6), limiter.key(&other_key).n(6)]).try_acquire().is_ok());
}

#[test]
fn keys_have_a_cost_and_a_plan() {
    let (clock, mut time) = Time::new();
    let bucket = TokenBucket::builder(TEN).clock(clock.clone()).build();
    let limiter =
        RateLimiter::<String>::stored(TEN).headroom(Quota::per_second(100)).unwrap().clock(clock).build();
    let gold = limiter.plan(Quota::per_second(100)).unwrap();
    let all = all_of((bucket.ask(), limiter.key("ada").n(60).under(&gold), limiter.key("bob")));
    assert_eq!(all.try_acquire().unwrap().remaining(), 9, "ada has 40, bob and the bucket 9");
    let denied = all.try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.retry_after()), (1, Some(ns(200 * MS))));
    assert_eq!((bucket.peek().remaining(), limiter.peek("bob").remaining()), (9, 9));
    time.advance(200 * MS - 1);
    assert!(all.try_acquire().is_err());
    time.advance(1);
    assert!(all.try_acquire().is_ok());
    let over = all_of((bucket.ask(), limiter.key("ada").n(60))).try_acquire().unwrap_err();
    assert_eq!(
        (over.which(), over.denied().reason()),
        (1, Reason::TooMany),
        "under its own quota that is too much"
    );
}

#[test]
fn a_refusal_remembers_no_key() {
    let (clock, _time) = Time::new();
    let bucket = TokenBucket::builder(Quota::per_second(1)).clock(clock.clone()).build();
    let limiter = RateLimiter::<u64>::stored(TEN).clock(clock).build();
    assert!(all_of((bucket.ask(), limiter.key(&1).n(11))).try_acquire().is_err());
    assert!(bucket.try_acquire().is_ok());
    assert!(all_of((limiter.key(&1), limiter.key(&2), bucket.ask())).try_acquire().is_err());
    assert!(all_of((limiter.key(&1).n(0), limiter.key(&2).n(0))).try_acquire().is_ok());
    assert!(limiter.is_empty());
}

/// A key that starts with too few tokens earns from its first refusal on, as it does alone.
#[test]
fn a_new_key_that_starts_empty_is_granted_when_it_was_told() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(TEN).initial_tokens(0).clock(clock).build();
    for n in [1, 3] {
        let all = all_of([limiter.key(&n).n(n)]);
        let denied = all.try_acquire().unwrap_err();
        time.advance(denied.retry_after().unwrap().as_nanos() as u64 - 1);
        assert_eq!(all.try_acquire().unwrap_err().retry_after(), Some(ns(1)));
        time.advance(1);
        assert!(all.try_acquire().is_ok());
    }
}

/// No wait would help: a key that starts empty never has more than its burst either.
#[test]
fn more_than_the_burst_of_a_new_key_is_too_many_at_once() {
    let (clock, mut time) = Time::new();
    let empty = RateLimiter::<u64>::stored(TEN).initial_tokens(0).clock(clock.clone()).build();
    let service = TokenBucket::builder(Quota::per_hour(1)).initial_tokens(0).clock(clock).build();
    let all = all_of((service.ask(), empty.key(&1).n(11)));
    for _ in 0..2 {
        let denied = all.try_acquire().unwrap_err();
        let said = (denied.which(), denied.denied().reason(), denied.retry_after());
        assert_eq!(said, (1, Reason::TooMany, None));
        time.advance(3_600 * SECOND);
    }
    assert!(empty.is_empty());
}

#[test]
fn limits_may_be_on_clocks_of_their_own() {
    let (([a], mut a_time), ([b], mut b_time)) = (buckets([TEN]), buckets([TEN]));
    a_time.set(100 * SECOND);
    let all = all_of((a.ask().n(10), b.ask().n(10)));
    assert!(all.try_acquire().is_ok());
    a_time.advance(SECOND);
    let denied = all.try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.retry_after()), (1, Some(ns(SECOND))));
    b_time.advance(SECOND);
    assert_eq!((a.peek().remaining(), b.peek().remaining()), (10, 10));
    assert!(all.try_acquire().is_ok());
    // One clock goes back, and the other stays.
    a_time.set(90 * SECOND);
    assert_eq!(all.try_acquire().unwrap_err().which(), 0);
}

#[test]
fn one_in_shadow_mode_refuses_nothing() {
    let (clock, _time) = Time::new();
    let strict = TokenBucket::builder(Quota::per_second(2)).clock(clock.clone()).build();
    let shadow = TokenBucket::builder(Quota::per_second(1)).shadow(true).clock(clock.clone()).build();
    let keyed = RateLimiter::<u64>::stored(Quota::per_second(1)).shadow(true).clock(clock).build();
    let all = all_of((strict.ask(), shadow.ask(), keyed.key(&1)));
    assert!(all.try_acquire().is_ok());
    assert_eq!((shadow.overruled(), keyed.stats().overruled), (0, 0));
    assert!(all.try_acquire().is_ok());
    assert_eq!((shadow.overruled(), keyed.stats().overruled), (1, 1));
    // Another limit refuses: the limits in the shadow decide nothing and take nothing.
    assert_eq!(all.try_acquire().unwrap_err().which(), 0);
    assert_eq!((shadow.overruled(), keyed.stats().overruled), (1, 1));
    assert_eq!((shadow.peek().remaining(), keyed.peek(&1).remaining()), (0, 0));
}

/// Room is not checked beforehand, so the tokens taken before that key are given back, to the unit.
#[test]
fn who_comes_before_a_key_without_room_is_undone() {
    let (clock, mut time) = Time::new();
    let bucket = TokenBucket::builder(TEN).clock(clock.clone()).build();
    let shared = RateLimiter::<u64>::stored(TEN).clock(clock.clone()).with_places(0);
    let limiter = RateLimiter::<u64>::stored(TEN).clock(clock);
    let limiter = limiter.when_full(WhenFull::Deny).with_places(1);
    assert!(bucket.try_acquire_n(7).is_ok() && limiter.try_acquire_n(&1, 5).is_ok());
    time.advance(33 * MS);
    let before = (bucket.peek(), limiter.peek(&1));
    for n in [1, 3] {
        let all = all_of((bucket.ask().n(n), limiter.key(&1).n(n), limiter.key(&2)));
        let denied = all.try_acquire().unwrap_err();
        assert_eq!((denied.which(), denied.denied().reason()), (2, Reason::Full));
        assert_eq!((bucket.peek(), limiter.peek(&1)), before);
    }
    // The same with a key that shares a bucket, and with limits by reference.
    assert!(shared.try_acquire_n(&7, 4).is_ok());
    let (own, sharing, new) = (bucket.ask().n(2), shared.key(&7).n(5), limiter.key(&2));
    let all: [&dyn Tokens; 3] = [&own, &sharing, &new];
    let before = (bucket.peek(), shared.peek(&7));
    assert_eq!(all_of(&all[..]).try_acquire().unwrap_err().which(), 2);
    assert_eq!((bucket.peek(), shared.peek(&7), shared.stats().shared > 1), (before.0, before.1, true));
    // A key that is new in the call is full again.
    let other = RateLimiter::<u64>::stored(TEN).build();
    let denied = all_of((other.key(&9).n(10), limiter.key(&2))).try_acquire().unwrap_err();
    assert_eq!((denied.which(), other.peek(&9).remaining()), (1, 10));
}

/// The clock passes a second at each reading, and at the next reading no limit would refuse.
#[test]
fn limits_on_one_clock_are_asked_at_one_reading() {
    let (seconds, step) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let clock = Clock::from_fn({
        let (seconds, step) = (Arc::clone(&seconds), Arc::clone(&step));
        move || ns(SECOND * seconds.fetch_add(step.load(Relaxed), Relaxed))
    });
    let quick = TokenBucket::builder(Quota::per_second(2)).clock(clock.clone()).build();
    let bucket = TokenBucket::builder(Quota::per_second(1)).clock(clock.clone()).build();
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(1)).clock(clock).build();
    assert!(quick.try_acquire_n(2).is_ok() && bucket.try_acquire().is_ok());
    assert!(limiter.try_acquire(&1).is_ok());
    step.store(1, Relaxed);
    for keyed in [false, true] {
        let answer = match keyed {
            true => all_of((quick.ask(), limiter.key(&1))).try_acquire(),
            false => all_of((quick.ask(), bucket.ask())).try_acquire(),
        };
        let denied = answer.expect_err("both are empty");
        assert_eq!((denied.which(), denied.retry_after()), (1, Some(ns(SECOND))));
        seconds.store(0, Relaxed);
    }
}

/// A reading of one clock means nothing on another, even where it could pass for jitter.
#[test]
fn a_reading_of_one_clock_is_not_used_on_another() {
    let (([a], mut a_time), ([b], mut b_time)) = (buckets([TEN]), buckets([TEN]));
    a_time.set(999 * SECOND);
    b_time.set(1_000 * SECOND);
    assert!(b.try_acquire_n(10).is_ok());
    b_time.advance(SECOND);
    assert!(all_of((a.ask(), b.ask().n(10))).try_acquire().is_ok());
}

/// A taker gets the held and the earned tokens before the undo. The undo gives back no token that
/// would have spilt over the burst.
#[test]
fn what_would_have_spilt_is_not_undone() {
    let (clock, time) = Time::new();
    let bucket = Arc::new(TokenBucket::builder(TEN).clock(clock.clone()).build());
    let (other, time) = (bucket.clone(), Mutex::new(time));
    let limiter = RateLimiter::<u64>::stored(TEN).clock(clock).when_full(WhenFull::Deny);
    let limiter = limiter.on_decision(move |decision| {
        // Keys that fill the places of a table are granted.
        if decision.is_ok() {
            return;
        }
        time.lock().unwrap().advance(200 * MS);
        assert_eq!(other.ask().n(100).acquire_up_to().tokens(), 8);
    });
    let limiter = limiter.with_places(0);
    let denied = all_of((bucket.ask().n(4), limiter.key(&1))).try_acquire().unwrap_err();
    assert_eq!(denied.denied().reason(), Reason::Full);
    assert_eq!(bucket.peek().remaining(), 2, "as if the four had never been taken");
}

/// The limits of a call take room on the stack: more than 64 are an error, at once and by name.
#[test]
fn more_than_64_limits_are_refused() {
    let (clock, _time) = Time::new();
    let bucket = TokenBucket::builder(Quota::per_hour(1_000)).clock(clock).build();
    let limits = vec![bucket.ask(); 65];
    assert!(all_of(&limits[..64]).try_acquire().is_ok());
    let denied = all_of(limits.as_slice()).try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.denied().reason()), (64, Reason::TooManyLimits));
    assert_eq!((denied.retry_after(), bucket.peek().remaining()), (None, 936));
}

/// A limit that keeps a part of its burst refuses all, and nothing of the others is taken.
#[test]
fn a_kept_part_stays_in_all_of() {
    let (clock, mut time) = Time::new();
    time.set(0);
    let quota = Quota::per_second(10);
    let limiter = RateLimiter::<u64>::stored(quota).clock(clock.clone()).build();
    let bucket = TokenBucket::builder(quota).clock(clock).build();
    let both = all_of((bucket.ask().keep(30), limiter.key(&1).n(2).keep(50)));
    assert_eq!((0..9).filter(|_| both.try_acquire().is_ok()).count(), 2);
    let denied = both.try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.retry_after()), (1, Some(ns(100_000_000))));
    assert_eq!((bucket.peek().remaining(), limiter.peek(&1).remaining()), (8, 6));
}

/// Tokens above a kept part come back where a later limit has no room.
#[test]
fn a_take_above_a_kept_part_is_undone() {
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(TEN).clock(clock.clone()).build();
    let full = RateLimiter::<u64>::stored(TEN).clock(clock.clone()).when_full(WhenFull::Deny).with_places(0);
    let bucket = TokenBucket::builder(TEN).clock(clock).build();
    assert!(bucket.try_acquire().is_ok() && limiter.try_acquire(&1).is_ok());
    let all = all_of((bucket.ask().n(3).keep(50), limiter.key(&1).n(4).keep(50), full.key(&2)));
    assert_eq!(all.try_acquire().unwrap_err().which(), 2);
    assert_eq!((bucket.peek().remaining(), limiter.peek(&1).remaining()), (9, 9));
}

/// The refusal is that of the longest wait among all limits: each is looked at before the first
/// take.
#[test]
fn a_kept_part_is_looked_at_before_any_take() {
    let (clock, _time) = Time::new();
    let quotas = [TEN, Quota::per_hour(10)];
    let [fast, slow] = quotas.map(|quota| TokenBucket::builder(quota).clock(clock.clone()).build());
    let keys = quotas.map(|quota| RateLimiter::<u64>::stored(quota).clock(clock.clone()).build());
    assert!(fast.try_acquire().is_ok() && slow.try_acquire().is_ok());
    let of_buckets = all_of((fast.ask().n(5).keep(50), slow.ask().n(5).keep(50)));
    assert_eq!(of_buckets.try_acquire().unwrap_err().which(), 1);
    assert!(keys.iter().all(|limiter| limiter.try_acquire(&1).is_ok()));
    let of_keys = all_of((keys[0].key(&1).n(5).keep(50), keys[1].key(&1).n(5).keep(50)));
    assert_eq!(of_keys.try_acquire().unwrap_err().which(), 1);
    let windows = [Window::per_second(10), Window::per_hour(10)]
        .map(|window| RateLimiter::<u64, _>::builder(window).clock(clock.clone()).build());
    assert!(windows.iter().all(|limiter| limiter.try_acquire(&1).is_ok()));
    let of_windows = all_of((windows[0].key(&1).n(5).keep(50), windows[1].key(&1).n(5).keep(50)));
    assert_eq!(of_windows.try_acquire().unwrap_err().which(), 1);
}

#[test]
fn a_kept_part_is_decided_at_the_reading_that_is_given() {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u64>::stored(TEN).clock(clock.clone()).build();
    assert!(limiter.try_acquire_n(&1, 5).is_ok());
    let then = clock.now();
    mock.advance(std::time::Duration::from_secs(1));
    let above = limiter.key(&1).keep(50);
    assert!(above.at(then).try_acquire().is_err());
    assert!(above.at(clock.now()).try_acquire().is_ok());
}
