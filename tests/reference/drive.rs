//! A bucket and its ideal, side by side: both take each step. Each answer is compared with the
//! ideal's, and so is a look afterwards. Each wait is tried a nanosecond early and when due.
//!
//! The subject is a bucket, a key or an engine. The steps come from bytes (`fuzz`) or from proptest
//! (`strategies.rs`).

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use tollgate::{Moment, Reason};
use tollgate_testing::reference::steps::{Ahead, LAST, Move, Scale, Verb, counts_plan, nanos, near};
use tollgate_testing::reference::verbs::Promise;
use tollgate_testing::reference::worlds::{World, Worlds};
use tollgate_testing::reference::{Asked, Ideal, Maybe, Unit, plan};

use super::answers::{answer, denied, taken};
use super::quotas::{asked, quota};
use super::subject::{Decision, Made, Returned, Subject};
use super::time::Time;

/// Changes for which the reference's sums of earned tokens stay below 2^127.
const MOST_CHANGES: usize = 16;
/// Readings that are kept for a later decision.
const MOMENTS: usize = 4;
const MOST_PLANS: usize = 8;
/// Removals of the key. A place of a table that a key has left is free again 2 s later.
const MOST_REMOVED: usize = 4;

/// The wait of a refusal, if it ever ends.
type Wait = Option<u64>;

/// A plan, as the crate and the reference have it.
#[derive(Clone, Copy)]
struct Planned<P> {
    plan: P,
    ideal: plan::Plan,
    quota: Asked,
}

/// Tokens that may be given back. The worlds have a slot for each.
struct Pending<S: Subject> {
    taken: S::Taken,
    n: u64,
    under: Option<Planned<S::Plan>>,
    /// Removals of the key before.
    removed: usize,
}

pub(crate) struct Driver<S: Subject> {
    subject: S,
    worlds: Worlds,
    time: Time,
    quota: Asked,
    unit: Unit,
    scale: Scale,
    made: Vec<Planned<S::Plan>>,
    /// The plan of the current step.
    under: Option<Planned<S::Plan>>,
    /// Removals of the key so far.
    removed: usize,
    moments: [Option<(Moment, u64)>; MOMENTS],
    pending: Vec<Pending<S>>,
    changes: usize,
}

impl<S: Subject> Driver<S> {
    pub(crate) fn new(subject: S, ideal: Ideal, unit: Unit, time: Time) -> Driver<S> {
        let quota = asked(subject.quota());
        Driver {
            scale: Scale::new(quota, unit, &ideal),
            subject,
            worlds: Worlds::new(ideal),
            time,
            quota,
            unit,
            made: Vec::new(),
            under: None,
            removed: 0,
            moments: [None; MOMENTS],
            pending: Vec::new(),
            changes: 0,
        }
    }

    pub(crate) fn run(&mut self, steps: impl IntoIterator<Item = (Move, Ahead, Verb)>) {
        // The latest refusal and its due time, while no step has changed it.
        let mut refused: Option<(Verb, u64)> = None;
        for (number, (by, ahead, verb)) in steps.into_iter().enumerate() {
            let before = self.time.now();
            self.time.go_to(self.scale.moved(before, by));
            let now = self.time.now();
            let due = refused.filter(|(_, due)| (now + 1..=LAST).contains(due));
            if let (Move::Retry, Some((verb, due))) = (by, due) {
                self.time.go_to(due - 1);
                assert!(self.step(verb).is_some(), "{verb:?} granted before it was due at {due} ns");
                self.time.go_to(due);
                assert!(self.step(verb).is_none(), "{verb:?} refused when it was due at {due} ns");
                refused = None;
            } else {
                self.moments[number % MOMENTS] = Some((self.subject.now(), now));
                self.go_ahead(ahead);
                let due = self.step(verb).map(|wait| now.saturating_add(wait));
                refused = due.filter(|due| self.is_exact(*due)).map(|due| (verb, due));
            }
            if self.worlds.are_lost() {
                return;
            }
        }
        // The latest first, so that all may come back.
        while !self.worlds.are_lost() && !self.pending.is_empty() {
            self.drop(self.pending.len() - 1);
            self.look();
        }
    }

    /// Returns whether a wait until `due` is short enough that no range takes it for a clock that
    /// was set back.
    fn is_exact(&self, due: u64) -> bool {
        let now = self.time.now();
        self.under.is_none() && due - now <= 1 << 61
            || due <= LAST && self.worlds.any().is_straight_until(now, due)
    }

    fn go_ahead(&mut self, ahead: Ahead) {
        match ahead {
            Ahead::Under(0) => self.ask_under(None),
            Ahead::Under(which) => {
                self.ask_under(self.made.iter().rev().nth(usize::from(which) - 1).copied());
            }
            Ahead::Plan(rate, size) => self.plan(near(self.quota, rate, size)),
            Ahead::Remove if self.removed < MOST_REMOVED && self.subject.remove() => {
                self.removed += 1;
                self.worlds.each(|world| world.ideal.begin_anew());
            }
            Ahead::Remove => {}
        }
    }

    fn ask_under(&mut self, made: Option<Planned<S::Plan>>) {
        self.under = made;
        self.worlds.each(|world| world.ideal.under(made.map(|made| made.ideal)));
    }

    fn plan(&mut self, asked @ (tokens, period, burst): Asked) {
        let small = counts_plan(self.quota, asked) && self.worlds.any().ticks_are_slow();
        if self.made.len() < MOST_PLANS
            && small
            && let Some(quota) = quota(asked)
            && let Some(plan) = self.subject.plan(quota)
        {
            self.worlds.each(|world| _ = world.ideal.plan(tokens, period, burst));
            let ideal = self.worlds.any().clone().plan(tokens, period, burst);
            self.made.push(Planned { plan, ideal, quota: asked });
            self.ask_under(self.made.last().copied());
        }
    }

    fn under(&self) -> Option<S::Plan> {
        self.under.map(|made| made.plan)
    }

    fn burst(&self) -> u64 {
        self.under.map_or(self.quota, |made| made.quota).2
    }

    fn check(&mut self, mut answer: impl FnMut(&mut Ideal, u64) -> Result<(), String>) {
        let now = self.time.now();
        self.worlds.check(|world| answer(&mut world.ideal, now));
    }

    /// Takes a step, and compares it and a look with the ideal.
    fn step(&mut self, verb: Verb) -> Wait {
        let burst = self.burst();
        let all = self.pending.len();
        let mut wait = None;
        match verb {
            Verb::Take(n) => wait = self.take(n.of(burst)),
            Verb::UpTo(n) => wait = self.up_to(n.of(burst), 0),
            Verb::UpToAbove(n, percent) => wait = self.up_to(n.of(burst), percent),
            Verb::Above(n, percent) => wait = self.above(n.of(burst), percent),
            Verb::TakeAt(which, n) => self.take_at(usize::from(which) % MOMENTS, n.of(burst)),
            Verb::Reserve(n) => wait = self.reserve(n.of(burst), 0, None),
            Verb::ReserveWithin(n, by) => wait = self.reserve(n.of(burst), 0, Some(by)),
            Verb::ReserveAbove(n, percent, by) => wait = self.reserve(n.of(burst), percent, by),
            Verb::Refund(n) => self.refund(n.of(burst)),
            Verb::Hold(n) => wait = self.hold(n.of(burst)),
            Verb::Charge(n) => self.charge(n.of(burst)),
            Verb::SetQuota(rate, size) => self.set_quota(near(self.quota, rate, size)),
            Verb::Drop(_) | Verb::Use(..) | Verb::Undo(_) if all == 0 => {}
            Verb::Drop(which) => self.drop(which.of(all)),
            Verb::Use(which, actual) => self.make_use(usize::from(which) % all, actual.of(burst)),
            Verb::Undo(which) => self.undo(which.of(all)),
        }
        self.look();
        wait
    }

    fn look(&mut self) {
        let seen = self.subject.look(self.under());
        self.check(|ideal, now| ideal.take(now, 0, seen));
    }

    fn take(&mut self, n: u64) -> Wait {
        let (decision, kept) = self.subject.take(n, self.under());
        self.taken(n, decision, kept)
    }

    fn hold(&mut self, n: u64) -> Wait {
        let n = n.max(self.subject.least_hold());
        let (decision, kept) = self.subject.hold(n, self.under());
        self.taken(n, decision, kept)
    }

    fn taken(&mut self, n: u64, decision: Decision, kept: Option<S::Taken>) -> Wait {
        let burst = self.burst();
        let answer = taken(decision, n, burst);
        self.keep(kept, n);
        self.check(|ideal, now| ideal.take(now, n.min(burst + 1), answer));
        answer.retry_after
    }

    fn take_at(&mut self, which: usize, n: u64) {
        let Some((moment, then)) = self.moments[which] else { return };
        let burst = self.burst();
        let (decision, at) = self.subject.take_at(moment, n, self.under());
        let answer = taken(decision, n, burst);
        let now = self.time.now();
        assert!(at.is_none_or(|at| at == then || at == now), "read at {at:?} ns");
        self.worlds.check_either(
            |ideal| match at {
                Some(at) => Maybe { yes: at == then, no: at != then },
                None => ideal.admits(then, now),
            },
            |ideal, earlier| ideal.take(if earlier { then } else { now }, n.min(burst + 1), answer),
        );
    }

    fn above(&mut self, n: u64, percent: u8) -> Wait {
        let burst = self.burst();
        let (decision, back) = self.subject.above(n, percent, self.under());
        let kept = self.kept(percent);
        // A take of nothing is granted, and keeps nothing.
        let most = if n == 0 { burst } else { burst.saturating_sub(kept) };
        let answer = taken(decision, n, most);
        self.keep(back, n);
        self.check(|ideal, now| ideal.take_above(now, n.min(burst + 1), kept, answer));
        answer.retry_after
    }

    /// Returns the tokens of a part of the burst.
    fn kept(&self, percent: u8) -> u64 {
        // A burst is at most 2^40.
        (self.burst() * u64::from(percent)).div_ceil(100)
    }

    fn up_to(&mut self, n: u64, percent: u8) -> Wait {
        let (decision, back) = self.subject.up_to(n, percent, self.under());
        let tokens = decision.map_or(0, |given| given.tokens());
        let (kept, mut answer) = (self.kept(percent), answer(decision));
        self.keep(back, tokens);
        if tokens > 0 || n == 0 {
            self.check(|ideal, now| ideal.take_up_to(now, (n, kept), tokens, answer));
            return None;
        }
        // A take of one token tells when there is one.
        let refused = denied(self.subject.above(1, percent, self.under()).0.expect_err("there is none"));
        answer.granted = false;
        answer.retry_after = answer.retry_after.or(refused.retry_after);
        self.check(|ideal, now| ideal.take_up_to(now, (n, kept), 0, answer));
        self.check(|ideal, now| ideal.take_above(now, 1, kept, refused));
        answer.retry_after
    }

    /// Reserves tokens, with a patience of 256ths of the time of a token.
    fn reserve(&mut self, n: u64, percent: u8, patience: Option<u16>) -> Wait {
        let patience = patience.map(|by| self.scale.time(by.into(), 256));
        let reserved = self.subject.reserve(n, percent, patience, self.under());
        let kept = if n == 0 { 0 } else { self.kept(percent) };
        let (n, too_many) = (n.min(self.burst() + 1), n.saturating_add(kept) > self.burst());
        let promise = match reserved {
            Ok(Made { answer, delay, ready_at, kept }) => {
                let (delay, now) = (nanos(delay), self.time.now());
                // Another reading gives the same time. The longest delay ends with the last
                // reading.
                assert_eq!(nanos(ready_at.since(self.subject.now())), delay.min(u64::MAX - now));
                self.keep(kept, n);
                Promise { answer, delay: Some(delay), indebted: false }
            }
            Err(refused) => {
                assert_eq!(refused.reason() == Reason::TooMany, too_many);
                Promise { answer: denied(refused), delay: None, indebted: refused.reason() == Reason::Debt }
            }
        };
        self.check(|ideal, now| match patience {
            Some(0) if S::ZERO_PATIENCE_TAKES => {
                assert!(promise.delay.unwrap_or(0) == 0 && !promise.indebted);
                ideal.take_above(now, n, kept, promise.answer)
            }
            _ => ideal.reserve(now, (n, kept), patience, promise),
        });
        promise.answer.retry_after
    }

    fn refund(&mut self, n: u64) {
        let committed = self.subject.refund(n, self.under());
        self.worlds.refund(self.time.now(), n.min(1 << 41), committed);
    }

    fn charge(&mut self, n: u64) {
        // A charge is never of 0 tokens.
        let n = n.max(1);
        let taken = self.subject.charge(n, self.under());
        self.check(|ideal, now| ideal.charge_up_to(now, n, taken));
    }

    /// Keeps the taken tokens for later. It comes before the take is compared with the ideal.
    fn keep(&mut self, kept: Option<S::Taken>, n: u64) {
        if let Some(taken) = kept {
            self.worlds.slot(self.time.now(), n);
            self.pending.push(Pending { taken, n, under: self.under, removed: self.removed });
        }
    }

    /// Returns pending tokens, their number, and whether their bucket is still there. The next step
    /// is under their plan.
    fn pick(&mut self, which: usize) -> (S::Taken, u64, bool) {
        let Pending { taken, n, under, removed } = self.pending.swap_remove(which);
        self.ask_under(under);
        (taken, n, removed == self.removed)
    }

    fn drop(&mut self, which: usize) {
        let (taken, n, is_there) = self.pick(which);
        let seen = match self.subject.give_back(taken) {
            Returned::Unseen if is_there => None,
            Returned::Seen { last, committed } => Some((last, committed)),
            // A hold that stays as estimated, or tokens of a removed key.
            _ => return self.worlds.forget(which),
        };
        self.worlds.give_back(self.time.now(), which, n, seen);
    }

    fn undo(&mut self, which: usize) {
        let (taken, ..) = self.pick(which);
        let (void, committed) = self.subject.undo(taken);
        assert!(!(void && committed), "a promise was injected");
        let now = self.time.now();
        if !void {
            self.worlds.check(|World { ideal, slots }| ideal.undo(now, &slots[which], Some(committed)));
        }
        self.worlds.forget(which);
    }

    fn make_use(&mut self, which: usize, actual: u64) {
        let (taken, estimate, is_there) = self.pick(which);
        if let Some(rest) = self.subject.settle(taken, actual) {
            match actual.checked_sub(estimate) {
                Some(more) if !is_there => assert_eq!(rest, more),
                None if is_there => self.worlds.give_excess(self.time.now(), which, estimate - actual),
                None | Some(0) => {}
                Some(more) => {
                    let taken = more.checked_sub(rest).expect("the rest is a part");
                    self.check(|ideal, now| ideal.charge_up_to(now, more, taken));
                }
            }
            assert!(rest == 0 || actual > estimate);
        }
        self.worlds.forget(which);
    }

    fn set_quota(&mut self, asked_for @ (tokens, _, burst): Asked) {
        let Some(quota) = quota(asked_for) else { return };
        let wraps = !self.made.is_empty() && !self.worlds.any().ticks_are_slow();
        if self.changes == MOST_CHANGES || wraps {
            return;
        }
        let set = self.subject.set_quota(quota);
        assert_eq!(set, self.unit.takes(asked_for), "{asked_for:?} after {:?}", self.quota);
        if set {
            let now = self.time.now();
            self.worlds.each(|world| world.ideal.set_quota(now, tokens, burst));
            self.scale = Scale::new(asked_for, self.unit, self.worlds.any());
            self.quota = asked_for;
            self.changes += 1;
        }
        assert_eq!(asked(self.subject.quota()), self.quota);
    }
}
