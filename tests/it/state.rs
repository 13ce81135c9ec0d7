// promise: state
//! State over a restart: a restored limiter beside one that went on, under the same calls.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use tollgate::{Clock, MockClock, Plan, Quota, RateLimiter, Rule, Window};

use crate::support::Random;

type Hasher = BuildHasherDefault<DefaultHasher>;
type Keys<R> = RateLimiter<u64, R, Hasher>;

/// A limiter with its plan.
struct Side<R: Rule> {
    limiter: Keys<R>,
    plan: Plan<R>,
}

/// A rule, one that it is changed to, and one of a plan.
type Rules<R> = [R; 3];

/// The verbs that only some rules have.
trait Verbs: Rule {
    fn reserve(limiter: &Keys<Self>, key: u64, n: u64, uses: bool) -> u64;
}

impl Verbs for Quota {
    fn reserve(limiter: &Keys<Quota>, key: u64, n: u64, uses: bool) -> u64 {
        match limiter.key(&key).n(n).reserve() {
            Ok(promised) if uses => promised.commit().tokens(),
            _ => 0,
        }
    }
}

impl Verbs for Window {
    fn reserve(limiter: &Keys<Window>, key: u64, n: u64, _: bool) -> u64 {
        limiter.key(&key).n(n).keep(25).try_acquire().map_or(0, |granted| granted.tokens())
    }
}

impl<R: Verbs> Side<R> {
    fn new(limiter: Keys<R>, plan: R) -> Side<R> {
        let plan = limiter.plan(plan).expect("there is room for the plan");
        Side { limiter, plan }
    }

    /// Makes a call, and returns the tokens that it was granted, and those that are left.
    fn call(&self, verb: u64, key: u64, n: u64) -> (u64, u64) {
        let ask = self.limiter.key(&key).n(n);
        let granted = match verb {
            0 => ask.under(&self.plan).acquire_up_to().tokens(),
            1 => ask.acquire_up_to().tokens(),
            2 => R::reserve(&self.limiter, key, n, key.is_multiple_of(2)),
            3 => ask.hold().map_or(0, |hold| n + key - hold.settle(n + key)),
            4 => {
                ask.refund();
                0
            }
            5 => self.limiter.shared().n(n).acquire_up_to().tokens(),
            6 => {
                self.limiter.remove(&key);
                0
            }
            7 => ask.under(&self.plan).try_acquire().map_or(0, |granted| granted.tokens()),
            _ => ask.try_acquire().map_or(0, |granted| granted.tokens()),
        };
        (granted, self.limiter.peek(&key).remaining())
    }
}

/// The events of a trial that allow a restored limiter to grant less.
#[derive(Debug, Default)]
struct Less {
    /// The limiter ran out of room: keys share buckets, and its hand stood elsewhere.
    full: bool,
    /// The clock was set back at the save.
    set_back: bool,
    /// The rule was changed: the ticks of plans count from another beginning.
    changed: bool,
}

fn advance(random: &mut Random, clock: &MockClock, span: u64, less: &mut Less) {
    let nanos = span >> random.below(12);
    if random.below(40) == 0 {
        less.set_back = true;
        clock.rewind(Duration::from_nanos(random.below(nanos + 1)));
    }
    clock.advance(Duration::from_nanos(random.below(nanos + 1)));
}

fn trial<R: Verbs>(random: &mut Random, [rule, later, plan]: Rules<R>, span: u64) {
    let (clock, mock) = Clock::mock();
    mock.advance(Duration::from_nanos(random.next() >> random.below(30).max(3)));
    let (mut less, keys) = (Less::default(), 6);
    let store = random.below(4);
    less.full = store == 1;
    let build = || {
        let builder = RateLimiter::builder(rule).clock(clock.clone()).hasher(Hasher::default());
        let builder = builder.plans([plan]).and_then(|builder| builder.headroom(later));
        let builder = builder.expect("there is room");
        let builder = match store {
            0 => builder.inline(32).expect("a small table"),
            1 => builder.max_keys(3),
            _ => builder,
        };
        Side::new(builder.build(), plan)
    };
    let went_on = build();
    for _ in 0..random.below(24) {
        went_on.call(random.below(12), random.below(keys), random.below(4));
        advance(random, &mock, span, &mut less);
        if random.below(16) == 0 {
            less.changed = true;
            went_on.limiter.set_rule(later).expect("there is headroom");
        }
    }
    let bytes = went_on.limiter.save();
    if random.below(2) == 0 {
        mock.advance(Duration::from_nanos(random.below(span) << random.below(12)));
    }
    let restored = build();
    if less.changed {
        assert!(restored.limiter.restore(&bytes).is_err() || rule == later);
        restored.limiter.set_rule(later).expect("there is headroom");
    }
    restored.limiter.restore(&bytes).expect("it is the state of such a limiter");
    for key in 0..keys {
        let both = [&went_on, &restored].map(|side| side.limiter.peek(&key));
        assert!(both[1].remaining() <= both[0].remaining(), "{rule}, {less:?}, key {key}: {both:?}, {:?}", [&went_on, &restored].map(|side| side.limiter.contains(&key)));
        if !less.full && !less.set_back {
            assert_eq!(both[1].remaining(), both[0].remaining(), "{rule}");
        }
    }
    let mut granted = [0, 0];
    for _ in 0..if less.full { 0 } else { random.below(24) } {
        let (verb, key, n) = (random.below(12), random.below(keys), random.below(4));
        let (on, back) = (went_on.call(verb, key, n), restored.call(verb, key, n));
        granted = [granted[0] + on.0, granted[1] + back.0];
        assert!(granted[1] <= granted[0], "{rule}: {back:?} after {on:?}, {less:?} {verb} {key} {n} {store}");
        if on != back {
            assert!(less.set_back || less.changed, "{rule}: {back:?}, and {on:?} without the restart, {less:?}");
            return;
        }
        // Cores differ by less than the eviction grace.
        mock.rewind(Duration::from_millis(random.below(20)));
        mock.advance(Duration::from_millis(20) + Duration::from_nanos(random.below(span) >> random.below(12)));
    }
}

#[test]
fn a_restored_limiter_grants_what_one_that_went_on_does() {
    const SECOND: u64 = 1_000_000_000;
    let random = &mut Random(45);
    for round in 0..100_000_u64 {
        let (limit, seconds) = (4 + random.below(9), 1 + random.below(600));
        let nanos = seconds * SECOND;
        let period = Duration::from_nanos(nanos);
        let window = Window::per(limit, period);
        let windows = |window: Window| {
            [window, window.with_limit(limit - 2).unwrap(), window.with_limit(limit + 3).unwrap()]
        };
        match round % 8 {
            0 => trial(random, windows(window), 2 * nanos),
            1 => trial(random, windows(window.sliding()), nanos),
            2 => trial(random, windows(window.weighted()), nanos),
            3 => trial(random, windows(Window::per_day(limit).utc()), 86_400 * SECOND),
            4 => trial(random, windows(Window::per_month(limit).utc_offset(-210)), 40 * 86_400 * SECOND),
            5 => {
                let slow = Quota::per(limit, period).burst(3);
                trial(random, [slow, slow.burst(9), Quota::per(2 * limit, period).burst(5)], nanos);
            }
            6 => {
                let quota: Quota = Quota::at_most(limit, period).burst(2);
                trial(random, [quota, Quota::per(3 * limit, period).burst(4), quota.burst(3)], nanos / limit);
            }
            _ => {
                let fast = Quota::per(limit * 1_000, Duration::from_micros(7 * seconds)).burst(limit * 10_000);
                let (later, plan) = (fast.burst(limit * 15_000), fast.burst(limit * 14_000));
                trial(random, [fast, later, plan], 70_000 * seconds);
            }
        }
    }
}
