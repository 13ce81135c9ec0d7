// promise: law, never-late
//! Each verb with each option, by each handle, of either rule, beside the law in plain integers.
//!
//! The handles are a single bucket, a key, a pinned key and the bucket of no key; one key is under
//! a plan. A hook sees each decision once. In shadow mode the law is the same, and no decision is a
//! refusal.

mod ideals;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tollgate::{
    Ask, Asked, Denied, Granted, Limit, Moment, Quota, RateLimiter, Reason, Reservation, Window, all_of,
};

use self::ideals::{Bucket, Counted, Ideal};
use super::InStore;
use crate::support::{Random, Time, nanos, ns};

type Decision = Result<Granted, Denied>;

/// The time of a token.
const TOKEN: u64 = 1 << 20;

/// A rule with its ideal.
trait Rule: tollgate::Rule {
    type Ideal: Ideal;

    /// Returns the ideal of a limiter with this rule, under a plan of it.
    fn under(self, plan: Self) -> Self::Ideal;

    /// Reserves the tokens of a request, if the rule has tokens to come.
    fn reserve<'a>(ask: Ask<'a, impl Asked<'a, Rule = Self>>) -> Option<Result<Reservation<'a>, Denied>>;
}

impl Rule for Quota {
    type Ideal = Bucket;

    fn under(self, plan: Quota) -> Bucket {
        Bucket::new(nanos(plan.period()) / plan.tokens(), plan.capacity())
    }

    fn reserve<'a>(ask: Ask<'a, impl Asked<'a, Rule = Quota>>) -> Option<Result<Reservation<'a>, Denied>> {
        Some(ask.reserve())
    }
}

impl Rule for Window {
    type Ideal = Counted;

    fn under(self, plan: Window) -> Counted {
        Counted::new(self, plan.limit())
    }

    fn reserve<'a>(_: Ask<'a, impl Asked<'a, Rule = Window>>) -> Option<Result<Reservation<'a>, Denied>> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    TryAcquire,
    /// The verb of the handle itself, which has no options.
    Short,
    AllOf,
    UpTo,
    Peek,
    Refund,
    Hold,
    Reserve,
}

use Verb::{AllOf, Hold, Peek, Refund, Reserve, Short, TryAcquire, UpTo};

const VERBS: [Verb; 8] = [TryAcquire, Short, AllOf, UpTo, Peek, Refund, Hold, Reserve];

/// A request of a handle, and the ideal of its bucket.
struct On<'a, 'i, R: Rule, B: Asked<'a, Rule = R>, S> {
    handle: &'static str,
    ask: Ask<'a, B>,
    short: S,
    now: Moment,
    ideal: &'i mut R::Ideal,
}

/// A walk: the clock, the random numbers, and the combinations that it has tried.
struct Walk {
    time: Time,
    random: Random,
    /// The decisions that the hook has seen.
    seen: Arc<Mutex<Vec<Decision>>>,
    shadow: bool,
    overruled: u64,
    tried: BTreeSet<(&'static str, Verb, bool, bool)>,
}

impl Walk {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    /// Takes a step by a handle, and compares it with the ideal.
    fn step<'a, R: Rule, B: Asked<'a, Rule = R>>(
        &mut self,
        On { handle, ask, short, now: reading, ideal }: On<'a, '_, R, B, impl Fn(u64) -> Decision>,
    ) {
        let now = self.time.now();
        let (verb, n) = (self.one_of(&VERBS), self.one_of(&[0, 1, 1, 2, 3, 7, 10, 11]));
        let options = verb != Short;
        let keep = if options { self.one_of(&[0, 0, 0, 25, 50, 99, 100, 255]) } else { 0 };
        let within = self.one_of(&[None, Some(0), Some(TOKEN), Some(12 * TOKEN)]);
        let at = options && self.random.below(3) == 0;
        let what = format!("{handle}: {verb:?} of {n}, keep {keep}, within {within:?}, at {now} ns");

        let mut ask = ask.n(n).keep(keep);
        ask = within.map_or(ask, |within| ask.within(ns(within)));
        ask = if at { ask.at(reading) } else { ask };
        let (burst, left) = (ideal.burst(), ideal.left(now));
        let kept = (burst * u64::from(keep)).div_ceil(100);
        let need = if n == 0 { 0 } else { n + kept };
        let is_there = need <= burst && ideal.grants(now, need);
        self.tried.insert((handle, verb, keep > 0, at));
        match verb {
            // The debt is bounded by the own burst.
            Reserve if n + ideal.owed(now) > left + 5 => {}
            TryAcquire => self.decided(&what, (n, need), ask.try_acquire(), ideal),
            Short => self.decided(&what, (n, need), short(n), ideal),
            AllOf => {
                let decision = all_of([ask]).try_acquire().map_err(|denied| denied.denied());
                self.decided(&what, (n, need), decision, ideal);
            }
            UpTo => {
                let (tokens, granted) = (n.min(left.saturating_sub(kept)), ask.acquire_up_to());
                let judged = self.judged(&what);
                ideal.take(now, tokens);
                match judged {
                    Ok(first) => assert_eq!((first.tokens(), tokens > 0 || n == 0), (tokens, true), "{what}"),
                    Err(denied) => assert_eq!((denied.remaining(), tokens), (left, 0), "{what}"),
                }
                // Fewer tokens than asked for are a refusal of the others.
                let overruled = self.shadow && tokens < n;
                self.overruled += u64::from(overruled);
                let told = if overruled { n } else { tokens };
                assert_eq!((granted.tokens(), granted.remaining()), (told, ideal.left(now)), "{what}");
            }
            Peek => {
                let look = ask.peek();
                assert_eq!(look.remaining(), left, "{what}");
                match look.retry_after() {
                    Some(wait) => assert!(ideal.is_due(now, nanos(wait), need), "{what}: {wait:?}"),
                    None => assert!(need > burst, "{what}"),
                }
            }
            Refund => {
                ask.refund();
                ideal.give(now, n);
            }
            Hold => {
                let hold = ask.hold();
                let decision = hold.as_ref().map(|hold| hold.granted()).map_err(|denied| *denied);
                self.decided(&what, (n, need), decision, ideal);
                let Ok(hold) = hold else { return };
                let cost = self.one_of(&[0, n, n + ideal.left(now).min(2), n / 2]);
                let rest = hold.settle(cost);
                if is_there {
                    assert_eq!(rest, 0, "{what}, settled for {cost}");
                    // Keys without room may share the bucket of no key: a hold gives them nothing.
                    ideal.give(now, n.saturating_sub(cost));
                    ideal.take(now, cost.saturating_sub(n));
                } else {
                    assert_eq!(rest, cost.saturating_sub(n), "{what}, settled for {cost}");
                }
            }
            Reserve => {
                let Some(reserved) = R::reserve(ask) else { return };
                let (judged, patience) = (self.judged(&what), within.unwrap_or(u64::MAX / 2));
                match reserved {
                    Ok(reserved) => {
                        let delay = nanos(reserved.delay());
                        match judged {
                            Ok(granted) if is_there => {
                                assert_eq!((granted.tokens(), delay), (n, 0), "{what}")
                            }
                            Ok(granted) => {
                                assert_eq!(granted.tokens(), n, "{what}");
                                assert!(
                                    delay <= patience && ideal.is_due(now, delay, need),
                                    "{what}: {delay}"
                                );
                            }
                            Err(_) => {
                                assert!(self.shadow && !is_there && delay == 0, "{what}");
                                self.overruled += 1;
                            }
                        }
                        if self.random.below(2) == 0 {
                            assert_eq!(reserved.commit().tokens(), n, "{what}");
                            ideal.take(now, if judged.is_ok() { n } else { 0 });
                        }
                    }
                    Err(denied) => {
                        assert!(!is_there && !self.shadow && judged == Err(denied), "{what}: {denied:?}");
                        let wait = denied.retry_after().map(nanos);
                        match denied.reason() {
                            Reason::TooMany => assert!(need > burst && wait.is_none(), "{what}: {denied:?}"),
                            Reason::Empty => {
                                assert!(ideal.is_due(now, wait.unwrap(), need), "{what}: {denied:?}")
                            }
                            Reason::Deadline => {
                                let wait = wait.unwrap() + patience;
                                assert!(ideal.is_due(now, wait, need), "{what}: {denied:?}");
                            }
                            reason => unreachable!("{what}: {reason:?}"),
                        }
                        assert_eq!(
                            denied.reason() == Reason::Empty,
                            need <= burst && patience == 0,
                            "{what}"
                        );
                    }
                }
            }
        }
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        assert!(seen.is_empty(), "{what}: {seen:?}");
    }

    /// Returns the one decision that the hook has seen of a call.
    fn judged(&self, what: &str) -> Decision {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let [judged] = seen[..] else { panic!("{what}: the hook saw {seen:?}") };
        judged
    }

    /// Compares a decision on `n` tokens, which needs `need` of them, and follows it.
    fn decided(&mut self, what: &str, (n, need): (u64, u64), decision: Decision, ideal: &mut impl Ideal) {
        let (judged, now) = (self.judged(what), self.time.now());
        let (left, burst) = (ideal.left(now), ideal.burst());
        match judged {
            Ok(granted) => {
                assert!(need <= burst && ideal.grants(now, need), "{what}: {granted:?} of {left}");
                ideal.take(now, n);
                assert_eq!((granted.tokens(), granted.remaining()), (n, ideal.left(now)), "{what}");
                assert_eq!(decision, judged, "{what}");
            }
            Err(denied) => {
                assert_eq!(denied.remaining(), left, "{what}: {denied:?}");
                let reason = if need > burst { Reason::TooMany } else { Reason::Empty };
                assert_eq!(
                    (denied.reason(), denied.retry_after().is_none()),
                    (reason, need > burst),
                    "{what}"
                );
                if let Some(wait) = denied.retry_after() {
                    assert!(!wait.is_zero() && ideal.is_due(now, nanos(wait), need), "{what}: {denied:?}");
                }
                self.overruled += u64::from(self.shadow);
                match decision {
                    Ok(granted) => assert_eq!((self.shadow, granted.tokens()), (true, n), "{what}"),
                    Err(told) => assert_eq!((self.shadow, told), (false, denied), "{what}"),
                }
            }
        }
    }
}

/// Walks with a rule, and with a plan of it for a key.
fn walk<R: Rule>(rule: R, plan: R, shadow: bool, seed: u64) {
    let (clock, time) = Time::new();
    let seen = Arc::<Mutex<Vec<Decision>>>::default();
    let hook = || {
        let seen = seen.clone();
        move |decision: &Decision| seen.lock().unwrap().push(*decision)
    };
    let bucket = Limit::builder(rule).clock(clock.clone()).shadow(shadow).on_decision(hook()).build();
    let limiter = RateLimiter::<u64, _>::stored(rule).clock(clock).shadow(shadow).on_decision(hook()).build();
    let planned = limiter.plan(plan).expect("it needs no more room");
    let [mut alone, mut own, mut shared] = [(); 3].map(|()| rule.under(rule));
    let mut under = rule.under(plan);
    let (random, tried) = (Random(seed), BTreeSet::new());
    let mut walk = Walk { time, random, seen: seen.clone(), shadow, overruled: 0, tried };
    for _ in 0..6_000 {
        // Whole ticks of a bucket, up to the time that fills it four times.
        let by = walk.one_of(&[0, 0, 0, 1, 5, 16, 40, 160, 640]);
        walk.time.advance(by * TOKEN / 16);
        let (now, pinned) = (limiter.now(), limiter.pin());
        match walk.random.below(6) {
            0 => {
                let short = |n| if n == 1 { bucket.try_acquire() } else { bucket.try_acquire_n(n) };
                walk.step(On { handle: "bucket", ask: bucket.ask(), short, now, ideal: &mut alone });
            }
            1 => {
                let short = |n| match n {
                    1 => limiter.try_acquire(&1),
                    2 => limiter.try_acquire_batch(&[(&1, n)]).next().expect("a decision for each"),
                    _ => limiter.try_acquire_n(&1, n),
                };
                walk.step(On { handle: "key", ask: limiter.key(&1), short, now, ideal: &mut own });
            }
            2 => {
                let short = |n| if n == 1 { pinned.try_acquire(&1) } else { pinned.try_acquire_n(&1, n) };
                walk.step(On { handle: "pinned", ask: pinned.key(&1), short, now, ideal: &mut own });
            }
            3 => {
                let ask = limiter.key(&2).under(&planned);
                let short = |n| ask.n(n).try_acquire();
                walk.step(On { handle: "plan", ask, short, now, ideal: &mut under });
            }
            4 => {
                let ask = pinned.key(&2).under(&planned);
                let short = |n| ask.n(n).try_acquire();
                walk.step(On { handle: "pinned plan", ask, short, now, ideal: &mut under });
            }
            _ => {
                let short = |n| limiter.shared().n(n).try_acquire();
                walk.step(On { handle: "shared", ask: limiter.shared(), short, now, ideal: &mut shared });
            }
        }
    }
    assert_eq!(limiter.stats().overruled + bucket.overruled(), walk.overruled);
    assert_eq!(walk.overruled > 0, shadow);
    // A short verb has no options. Each other verb was with a kept part and without, now and at a
    // reading.
    assert_eq!(walk.tried.len(), 6 * (1 + 4 * (VERBS.len() - 1)));
}

const BUCKET: Quota = Quota::per(1, ns(TOKEN)).burst(10);
const WINDOW: Window = Window::per(10, ns(10 * TOKEN));

#[test]
fn every_form_of_a_call_keeps_to_the_law_of_a_bucket() {
    for (seed, shadow) in [(1, false), (2, true)] {
        walk(BUCKET, Quota::per(1, ns(2 * TOKEN)).burst(7), shadow, seed);
    }
}

#[test]
fn every_form_of_a_call_keeps_to_the_law_of_a_window() {
    for window in [WINDOW, WINDOW.utc(), WINDOW.sliding(), WINDOW.weighted()] {
        for (seed, shadow) in [(3, false), (4, true)] {
            walk(window, window.with_limit(7).unwrap(), shadow, seed);
        }
    }
}
