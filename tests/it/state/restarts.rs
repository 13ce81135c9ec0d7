// promise: state
//! Random restarts: of limiters with keys in each store, and of single buckets.

use std::future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{
    Ask, Asked, Clock, Denied, Granted, Hold, Limit, LimitBuilder, MockClock, Places, Plan, Quota,
    RateLimiter, Reservation, Rule, Snapshot, Window,
};

use super::{Hasher, Keys};
use crate::support::{Random, size};

static KEYS: [u64; 6] = [0, 1, 2, 3, 4, 5];

/// A request that is under way at the save, with its tokens.
#[expect(dead_code, reason = "a hold and a reservation are dropped")]
enum Open<'a> {
    Hold(Hold<'a>),
    Reservation(Reservation<'a>),
    Waiting(Pin<Box<dyn Future<Output = Result<Granted, Denied>> + 'a>>),
}

impl Open<'_> {
    /// Returns the tokens that the request is granted now, after a wait in line.
    fn served(&mut self) -> Option<u64> {
        let Open::Waiting(waiting) = self else { return None };
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => Some(decision.map_or(0, |granted| granted.tokens())),
            Poll::Pending => None,
        }
    }
}

/// The verbs that only some rules have.
trait Verbs: Rule {
    /// Whether tokens in use end with their process.
    const ENDS: bool = false;

    fn reserve<'a, B: Asked<'a, Rule = Self>>(ask: Ask<'_, B>, _uses: bool) -> u64 {
        ask.keep(25).try_acquire().map_or(0, |granted| granted.tokens())
    }

    fn begin<'a, B: Asked<'a, Rule = Self> + 'a>(ask: Ask<'a, B>, _waits: bool) -> Option<Open<'a>> {
        ask.hold().ok().map(Open::Hold)
    }

    fn build(builder: LimitBuilder<Self>, _spread: bool) -> Limit<Self> {
        builder.build()
    }
}

impl Verbs for Quota {
    fn reserve<'a, B: Asked<'a, Rule = Quota>>(ask: Ask<'_, B>, uses: bool) -> u64 {
        match ask.reserve() {
            Ok(promised) if uses => promised.commit().tokens(),
            _ => 0,
        }
    }

    fn begin<'a, B: Asked<'a, Rule = Quota> + 'a>(ask: Ask<'a, B>, waits: bool) -> Option<Open<'a>> {
        match waits {
            true => Some(Open::Waiting(Box::pin(ask.acquire_by(|_| future::pending())))),
            false => ask.reserve().ok().map(Open::Reservation),
        }
    }

    fn build(builder: LimitBuilder<Quota>, spread: bool) -> Limit<Quota> {
        if spread { builder.spread() } else { builder }.build()
    }
}

impl Verbs for Window {}

impl Verbs for Places {
    const ENDS: bool = true;
}

/// A limiter with its plan, or one bucket.
enum Side<R: Rule> {
    Keys(Keys<R>, Plan<R>),
    One(Box<Limit<R>>),
}

/// Makes a call of any bucket, and returns the tokens that it was granted.
fn call<'a, R: Verbs, B: Asked<'a, Rule = R>>(ask: Ask<'_, B>, verb: u64, key: u64, n: u64) -> u64 {
    match verb {
        1 => ask.acquire_up_to().tokens(),
        2 => R::reserve(ask, key.is_multiple_of(2)),
        3 => ask.hold().map_or(0, |hold| {
            // What is used beyond the hold is charged, and not granted.
            _ = hold.settle(n + key);
            n
        }),
        4 => {
            ask.refund();
            0
        }
        _ => ask.try_acquire().map_or(0, |granted| granted.tokens()),
    }
}

impl<R: Verbs> Side<R> {
    /// Makes a call, and returns the tokens that it was granted, and those that are left.
    fn call(&self, verb: u64, key: u64, n: u64) -> (u64, u64) {
        let granted = match self {
            Side::Keys(limiter, plan) => {
                let ask = limiter.key(&key).n(n);
                match verb {
                    0 => ask.under(plan).acquire_up_to().tokens(),
                    5 => limiter.shared().n(n).acquire_up_to().tokens(),
                    6 => {
                        limiter.remove(&key);
                        0
                    }
                    7 => ask.under(plan).try_acquire().map_or(0, |granted| granted.tokens()),
                    verb => call(ask, verb, key, n),
                }
            }
            Side::One(bucket) => call(bucket.ask().n(n), verb, key, n),
        };
        (granted, self.peek(key).remaining())
    }

    /// Begins a request that is not over at the save.
    fn begin(&self, key: usize, n: u64, waits: bool) -> Option<Open<'_>> {
        match self {
            Side::Keys(limiter, _) => R::begin(limiter.key(&KEYS[key]).n(n), waits),
            Side::One(bucket) => R::begin(bucket.ask().n(n), waits),
        }
    }

    fn peek(&self, key: u64) -> Snapshot {
        match self {
            Side::Keys(limiter, _) => limiter.peek(&key),
            Side::One(bucket) => bucket.peek(),
        }
    }

    /// Returns the tokens that are left under the plan, if there is one.
    fn peek_under(&self, key: u64) -> Option<Snapshot> {
        let Side::Keys(limiter, plan) = self else { return None };
        Some(limiter.key(&key).under(plan).peek())
    }

    fn set_rule(&self, rule: R) {
        match self {
            Side::Keys(limiter, _) => limiter.set_rule(rule),
            Side::One(bucket) => bucket.set_rule(rule),
        }
        .expect("there is headroom");
    }

    fn save(&self) -> Vec<u8> {
        match self {
            Side::Keys(limiter, _) => limiter.save(),
            Side::One(bucket) => bucket.save(),
        }
    }

    fn restores(&self, bytes: &[u8]) -> bool {
        match self {
            Side::Keys(limiter, _) => limiter.restore(bytes),
            Side::One(bucket) => bucket.restore(bytes),
        }
        .is_ok()
    }
}

/// The store of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Store {
    #[default]
    Table,
    /// A map with too little room.
    Tight,
    Map,
    One,
    Spread,
}

impl Store {
    const ALL: [Store; 6] = [Store::Table, Store::Tight, Store::Map, Store::Map, Store::One, Store::Spread];

    /// Builds a limiter; `process` tells the hashers of maps apart.
    fn build<R: Verbs>(self, [rule, later, plan]: [R; 3], clock: &Clock, process: u64) -> Side<R> {
        if matches!(self, Store::One | Store::Spread) {
            let builder = Limit::builder(rule).clock(clock.clone()).headroom(later);
            return Side::One(R::build(builder.expect("there is room"), self == Store::Spread).into());
        }
        let hasher = Hasher { process: if self == Store::Table { 0 } else { process } };
        let builder = RateLimiter::builder(rule).clock(clock.clone()).hasher(hasher);
        let builder = builder.plans([plan]).and_then(|builder| builder.headroom(later));
        let builder = builder.expect("there is room");
        let limiter = match self {
            Store::Table => builder.max_keys(32).inline().expect("a small table"),
            Store::Tight => builder.max_keys(3),
            _ => builder,
        }
        .build();
        let plan = limiter.plan(plan).expect("there is room for the plan");
        Side::Keys(limiter, plan)
    }
}

/// The events of a trial that allow a restored limiter to grant less.
#[derive(Debug, Default)]
struct Less {
    store: Store,
    /// The limiter ran out of room: keys share buckets, and its hand stood elsewhere.
    full: bool,
    /// The clock was set back at the save.
    set_back: bool,
    /// The rule was changed: the ticks of plans count from another beginning, for a unit less.
    changed: bool,
    /// Requests were under way at the save: they end with their process.
    open: bool,
    /// Some of them waited in line.
    waited: bool,
    /// The bucket is spread.
    leased: bool,
}

/// A rule, one that it is changed to, and one of a plan; the nanoseconds between calls, and the
/// tokens of a large call.
struct Trial<R> {
    rules: [R; 3],
    span: u64,
    unit: u64,
}

fn advance(random: &mut Random, clock: &MockClock, span: u64, less: &mut Less) {
    let nanos = span >> random.below(12);
    if random.below(40) == 0 {
        less.set_back = true;
        clock.rewind(Duration::from_nanos(random.below(nanos + 1)));
    }
    clock.advance(Duration::from_nanos(random.below(nanos + 1)));
}

impl<R: Verbs> Trial<R> {
    fn tokens(&self, random: &mut Random) -> u64 {
        random.below(4) * [1, self.unit][random.below(2) as usize]
    }

    fn run(&self, random: &mut Random) {
        let Trial { rules: [rule, later, _], span, .. } = *self;
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_nanos(random.next() >> random.below(30).max(3)));
        let store = Store::ALL[random.below(6) as usize];
        let mut less = Less { store, full: store == Store::Tight, ..Less::default() };
        let build = |process| store.build(self.rules, &clock, process);
        let went_on = build(0);
        let mut is_later = false;
        for _ in 0..random.below(24) {
            went_on.call(random.below(12), random.below(6), self.tokens(random));
            if store == Store::Spread {
                // Cells get leases by takes that follow each other.
                (0..random.below(40)).for_each(|_| _ = went_on.call(8, 0, 1));
            }
            advance(random, &mock, span, &mut less);
            if random.below(16) == 0 {
                (is_later, less.changed) = (true, matches!(went_on, Side::Keys(..)));
                went_on.set_rule(later);
            }
        }
        let mut open = Vec::new();
        for _ in 0..random.below(8).saturating_sub(4) {
            let (key, n, waits) = (random.below(6) as usize, self.tokens(random), random.below(2) == 0);
            if let Some(mut begun) = went_on.begin(key, n, waits)
                && begun.served().is_none()
            {
                open.push(begun);
            }
        }
        let bytes = went_on.save();
        if random.below(2) == 0 {
            mock.advance(Duration::from_nanos(random.below(span) << random.below(12)));
        }
        let restored = build(random.below(2));
        if is_later {
            assert!(!restored.restores(&bytes) || rule == later);
            restored.set_rule(later);
        }
        assert!(restored.restores(&bytes), "it is the state of such a limiter");

        less.open = !open.is_empty();
        // The callers that were served while the restored limiter was down. Their timers are of no
        // mock clock: those behind them leave, because they are late.
        let served = open.iter_mut().filter_map(|begun| begun.served()).sum();
        less.waited = open.iter().any(|begun| matches!(begun, Open::Waiting(_)));
        open.retain(|begun| !matches!(begun, Open::Waiting(_)));
        let new = if store == Store::Spread { Store::One.build(self.rules, &clock, 0) } else { build(0) };
        if is_later {
            new.set_rule(later);
        }
        compare(if R::ENDS { &new } else { &went_on }, &restored, served, &less);
        drop(open);
        // Leases of a spread bucket earn late, so that one that went on may be granted less.
        less.leased = store == Store::Spread && new.restores(&bytes);
        let beside = if R::ENDS || less.leased { &new } else { &went_on };
        // A grant to a caller in line is a call that the restored limiter did not have.
        if !less.full && served == 0 {
            self.go_on(random, [beside, &restored], (&mock, &less));
        }
    }

    /// Makes the same calls of both limiters, until they differ.
    fn go_on(&self, random: &mut Random, sides: [&Side<R>; 2], at: (&MockClock, &Less)) {
        let (rule, (mock, less)) = (self.rules[0], at);
        let mut granted = [0, 0];
        for _ in 0..random.below(24) {
            let (verb, key, n) = (random.below(12), random.below(6), self.tokens(random));
            let [on, back] = sides.map(|side| side.call(verb, key, n));
            granted = [granted[0] + on.0, granted[1] + back.0];
            let told = format!("{rule}: {back:?} after {on:?}, {less:?} {verb} {key} {n}");
            assert!(granted[1] <= granted[0], "{told}");
            if on != back {
                assert!(less.set_back || less.changed || less.open || less.leased, "{told}");
                return;
            }
            // Cores differ by less than the eviction grace.
            mock.rewind(Duration::from_millis(random.below(20)));
            let more = Duration::from_nanos(random.below(self.span) >> random.below(12));
            mock.advance(Duration::from_millis(20) + more);
        }
    }
}

/// Compares the tokens that are left of a limiter that went on, and of a restored one.
fn compare<R: Verbs>(went_on: &Side<R>, restored: &Side<R>, served: u64, less: &Less) {
    for key in KEYS {
        let sides = [went_on, restored];
        // A caller that leaves the line touches its bucket, which earned by the rule until then.
        let planned = sides.map(|side| side.peek_under(key).filter(|_| !less.waited));
        for [on, back] in [sides.map(|side| Some(side.peek(key))), planned] {
            let Some((on, back)) = on.zip(back) else { continue };
            let told = || {
                let next = [on, back].map(|side| side.next_token());
                format!("{less:?}, key {key}: {back:?} after {on:?}, {served} served, next {next:?}")
            };
            assert!(back.remaining() <= on.remaining() + served, "{}", told());
            // Tokens on lease earn late.
            if back.remaining() == on.remaining() && served == 0 && less.store != Store::Spread {
                assert!(back.next_token() >= on.next_token(), "{}", told());
                assert!(back.reset_after() >= on.reset_after(), "{}", told());
            }
            if !less.full && !less.set_back && !less.waited {
                assert!(back.remaining() + u64::from(less.changed) >= on.remaining(), "{}", told());
            }
        }
    }
}

#[test]
fn a_restored_limiter_grants_what_one_that_went_on_does() {
    const SECOND: u64 = 1_000_000_000;
    let random = &mut Random(45);
    for round in 0..size(3_000_u64, 100_000) {
        let (limit, seconds) = (4 + random.below(9), 1 + random.below(600));
        let nanos = seconds * SECOND;
        let period = Duration::from_nanos(nanos);
        let window = Window::per(limit, period);
        let windows = |window: Window, span| Trial {
            rules: [window, window.with_limit(limit - 2).unwrap(), window.with_limit(limit + 3).unwrap()],
            span,
            unit: 2,
        };
        let quotas = |rules: [Quota; 3], span, unit| Trial { rules, span, unit };
        match round % 9 {
            0 => windows(window, 2 * nanos).run(random),
            1 => windows(window.sliding(), nanos).run(random),
            2 => windows(window.weighted(), nanos).run(random),
            3 => windows(Window::per_day(limit).utc(), 86_400 * SECOND).run(random),
            4 => windows(Window::per_month(limit).utc_offset(-210), 40 * 86_400 * SECOND).run(random),
            5 => {
                let slow = Quota::per(limit, period).burst(3);
                let plan = [Quota::per(2 * limit, period), Quota::per(limit, 9 * period)];
                let plan = plan[random.below(2) as usize].burst(5);
                quotas([slow, slow.burst(9), plan], nanos, 2).run(random);
            }
            6 => {
                let quota: Quota = Quota::at_most(limit, period).burst(2);
                let rules = [quota, Quota::per(3 * limit, period).burst(4), quota.burst(3)];
                quotas(rules, nanos / limit, 1).run(random);
            }
            7 => {
                let fast =
                    Quota::per(limit * 1_000, Duration::from_micros(7 * seconds)).burst(limit * 10_000);
                let rules = [fast, fast.burst(limit * 15_000), fast.burst(limit * 14_000)];
                quotas(rules, 70_000 * seconds, limit * 2_000).run(random);
            }
            _ => {
                let rules = [limit, limit - 2, limit + 3].map(|limit| Places::new(limit as u32));
                Trial { rules, span: nanos, unit: 2 }.run(random);
            }
        }
    }
}
