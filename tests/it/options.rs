// promise: law, never-late
//! Each option of a request has a meaning for each verb.

use tollgate::{Ask, Asked, Denied, Granted, Moment, Plan, Quota, RateLimiter, Reason, TokenBucket};

use super::InStore;
use crate::support::{Time, ns};

const MS: u64 = 1_000_000;
const TEN: Quota = Quota::per_second(10);

/// Runs a test on a request of a single bucket, of a key, of a pinned key, and of no key. Each has
/// a clock of its own, and readings of it.
macro_rules! on_each {
    (|$ask:ident, $time:ident, $now:ident| $run:expr) => {
        on_each!(bucket: TokenBucket::builder(TEN), bucket.ask(), |$ask, $time, $now| $run);
        on_each!(limiter: RateLimiter::<u64>::stored(TEN), limiter.key(&7), |$ask, $time, $now| $run);
        on_each!(limiter: RateLimiter::<u64>::stored(TEN), limiter.pin().key(&7), |$ask, $time, $now| $run);
        on_each!(limiter: RateLimiter::<u64>::stored(TEN), limiter.shared(), |$ask, $time, $now| $run);
    };
    ($built:ident: $builder:expr, $request:expr, |$ask:ident, $time:ident, $now:ident| $run:expr) => {{
        let (clock, $time) = Time::new();
        let $built = $builder.clock(clock).build();
        let $now = || $built.now();
        match $request {
            $ask => $run,
        }
    }};
}

/// Returns the tokens that are left, or the reason and the milliseconds of a refusal.
fn told(decision: Result<Granted, Denied>) -> Result<u64, (Reason, Option<u128>)> {
    let refused = |denied: Denied| (denied.reason(), denied.retry_after().map(|wait| wait.as_millis()));
    decision.map(|granted| granted.remaining()).map_err(refused)
}

fn a_kept_part<'a, B: Asked<'a, Rule = Quota>>(ask: Ask<'a, B>) {
    let left = || ask.peek().remaining();
    let wait = |ask: Ask<'a, B>| ask.peek().retry_after().map(|wait| wait.as_millis());
    assert_eq!(told(ask.n(8).keep(30).try_acquire()), Err((Reason::TooMany, None)));
    assert_eq!(wait(ask.n(8).keep(30)), None);
    assert_eq!(told(ask.n(7).keep(30).try_acquire()), Ok(3));
    assert_eq!([wait(ask), wait(ask.keep(30)), wait(ask.n(2).keep(30))], [Some(0), Some(100), Some(200)]);
    assert_eq!(told(ask.keep(30).try_acquire()), Err((Reason::Empty, Some(100))));

    assert_eq!(ask.n(10).keep(30).acquire_up_to().tokens(), 0);
    assert_eq!((ask.n(10).keep(20).acquire_up_to().tokens(), left()), (1, 2));

    let held = ask.keep(20).hold().map(|hold| hold.granted());
    assert_eq!(told(held), Err((Reason::Empty, Some(100))));
    assert_eq!(ask.keep(10).hold().unwrap().settle(1), 0);
    assert_eq!(left(), 1);

    // It is due when the kept part stays, and one of a wait of 0 is a take.
    assert_eq!(
        [0, 10, 20].map(|keep| ask.keep(keep).reserve().unwrap().delay()),
        [ns(0), ns(100 * MS), ns(200 * MS)]
    );
    let late = |within| told(ask.keep(10).within(ns(within)).reserve().map(|reserved| reserved.commit()));
    assert_eq!([0, 99 * MS].map(late), [Err((Reason::Empty, Some(100))), Err((Reason::Deadline, Some(1)))]);
    assert_eq!(ask.n(3).keep(40).reserve().unwrap().commit().tokens(), 3);
    assert_eq!(told(ask.try_acquire()), Err((Reason::Empty, Some(300))));

    ask.n(4).keep(90).refund();
    assert_eq!(left(), 2);
}

#[test]
fn a_kept_part_has_a_meaning_for_each_verb() {
    on_each!(|ask, _time, _now| a_kept_part(ask));
}

fn a_moment<'a>(ask: Ask<'a, impl Asked<'a, Rule = Quota>>, mut time: Time, now: impl Fn() -> Moment) {
    time.set(10_000 * MS);
    assert!(ask.n(10).try_acquire().is_ok());
    let then = now();
    time.advance(150 * MS);
    // One token has come since.
    let (early, present) = (ask.at(then), ask.at(now()));
    assert_eq!([early.peek(), present.peek(), ask.peek()].map(|look| look.remaining()), [0, 1, 1]);
    assert_eq!(early.peek().retry_after(), Some(ns(100 * MS)));
    assert_eq!(told(early.try_acquire()), Err((Reason::Empty, Some(100))));
    assert_eq!(early.n(5).acquire_up_to().tokens(), 0);
    assert_eq!(told(early.hold().map(|hold| hold.granted())), Err((Reason::Empty, Some(100))));
    // A wait counts from the moment. A refusal leaves the bucket as it is.
    for (ask, n, wait) in [(early, 1, 100), (early, 3, 300), (present, 3, 150)] {
        let late = ask.n(n).within(ns((wait - 1) * MS)).reserve().map(|reserved| reserved.commit());
        assert_eq!(told(late), Err((Reason::Deadline, Some(1))));
    }
    let reserved = early.n(3).within(ns(300 * MS)).reserve().unwrap();
    assert_eq!((reserved.delay(), reserved.ready_at().since(then)), (ns(300 * MS), ns(300 * MS)));
    drop(reserved);
    // Tokens come back now.
    early.n(2).refund();
    assert_eq!((ask.peek().remaining(), told(present.n(3).try_acquire())), (3, Ok(0)));
}

#[test]
fn a_moment_has_a_meaning_for_each_verb() {
    on_each!(|ask, time, now| a_moment(ask, time, now));
}

fn a_foreign_plan<'a>(ask: Ask<'a, impl Asked<'a, Rule = Quota>>, plan: &'a Plan) {
    let foreign = Err((Reason::ForeignPlan, None));
    let under = ask.under(plan);
    for n in [0, 1, 11] {
        assert_eq!(told(under.n(n).try_acquire()), foreign);
        assert_eq!(told(under.n(n).hold().map(|hold| hold.granted())), foreign);
        assert_eq!(told(under.n(n).reserve().map(|reserved| reserved.commit())), foreign);
        assert_eq!(told(under.n(n).blocking_acquire()), foreign);
        assert_eq!((under.n(n).acquire_up_to().tokens(), under.n(n).peek().retry_after()), (0, None));
    }
    assert_eq!(told(ask.n(10).try_acquire()), Ok(0));
    under.n(5).refund();
    assert_eq!((ask.peek().remaining(), under.peek().remaining()), (0, 0));
}

/// A plan of another limiter is refused by each verb, also by a bucket that has no plans.
#[test]
fn a_foreign_plan_has_a_meaning_for_each_verb() {
    let plan = RateLimiter::<u64>::stored(TEN).build().plan(TEN).unwrap();
    on_each!(|ask, _time, _now| a_foreign_plan(ask, &plan));
}

/// A verb that does not wait refuses at once, whatever the longest wait.
fn a_longest_wait<'a>(ask: Ask<'a, impl Asked<'a, Rule = Quota>>) {
    let ask = ask.within(ns(u64::MAX));
    assert_eq!(told(ask.n(9).try_acquire()), Ok(1));
    let empty = Err((Reason::Empty, Some(100)));
    assert_eq!(told(ask.n(2).try_acquire()), empty);
    assert_eq!(told(ask.n(2).hold().map(|hold| hold.granted())), empty);
    assert_eq!((ask.n(2).acquire_up_to().tokens(), ask.peek().retry_after()), (1, Some(ns(100 * MS))));
    ask.refund();
    assert_eq!(ask.peek().remaining(), 1);
}

#[test]
fn a_longest_wait_has_a_meaning_for_each_verb() {
    on_each!(|ask, _time, _now| a_longest_wait(ask));
}

/// An action is called for the tokens of its request, with all options.
#[test]
fn an_action_takes_by_the_options_of_its_request() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(TEN).clock(clock).build();
    let then = limiter.now();
    let half = limiter.key(&7).n(4).keep(50).limited(|n: u64| n);
    assert_eq!(half.try_call(5), Ok(5));
    assert_eq!(half.try_call(5).map_err(|denied| denied.retry_after()), Err(Some(ns(300 * MS))));
    time.advance(300 * MS);
    let late = limiter.key(&7).n(4).keep(50).at(then).within(ns(299 * MS)).limited(|n: u64| n);
    assert_eq!(late.try_call(5).map_err(|denied| denied.retry_after()), Err(Some(ns(300 * MS))));
    assert_eq!((half.try_call(5), limiter.peek(&7).remaining()), (Ok(5), 5));
}
