//! A single bucket, or the buckets of keys, through the public face: of either rule.
//!
//! A verb has several forms, and `how` chooses one: each has the same answer.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::cell::OnceCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use tollgate::{Denied, Granted, Hold, Limit, Moment, Plan, Quota, RateLimiter, Reservation, Rule, Snapshot};
use tollgate_testing::reference::Answer;

use super::answers::{granted, look};
use super::subject::{Decision, Made, Reserved, Returned, Subject};

pub(crate) enum Face<R: Rule = Quota, S = RandomState> {
    Alone(Box<Limit<R>>),
    /// A limiter and the plans that were made for it.
    Key(RateLimiter<u64, R, S>, Box<[OnceCell<Plan<R>>; 8]>),
}

/// Tokens that may be given back.
pub(crate) enum Taken<'a> {
    /// A reservation, its tokens, and the look at its making.
    Reservation(Reservation<'a>, u64, Answer),
    Hold(Hold<'a>),
}

/// The plan of a call, or the own rule. A single bucket has no plans.
type Under<'a, R = Quota> = Option<&'a Plan<R>>;

/// Runs an expression on the request for tokens of a bucket, under the plan of a call.
macro_rules! asked {
    ($face:expr, $key:expr, $n:expr, $plan:expr, |$ask:ident| $run:expr) => {
        match $face {
            Face::Alone(limit) => {
                let $ask = limit.ask().n($n);
                $run
            }
            Face::Key(limiter, _) => {
                let ask = limiter.key(&$key).n($n);
                let $ask = $plan.map_or(ask, |plan| ask.under(plan));
                $run
            }
        }
    };
}

impl<R: Rule, S: BuildHasher + Send + Sync> Face<R, S> {
    pub(crate) fn alone(limit: Limit<R>) -> Face<R, S> {
        Face::Alone(Box::new(limit))
    }

    pub(crate) fn key(limiter: RateLimiter<u64, R, S>) -> Face<R, S> {
        Face::Key(limiter, Default::default())
    }

    pub(crate) fn now(&self) -> Moment {
        match self {
            Face::Alone(limit) => limit.now(),
            Face::Key(limiter, _) => limiter.now(),
        }
    }

    pub(crate) fn rule(&self) -> R {
        match self {
            Face::Alone(limit) => limit.rule(),
            Face::Key(limiter, _) => limiter.rule(),
        }
    }

    /// Returns false if the rule is refused.
    pub(crate) fn set_rule(&self, rule: R) -> bool {
        let set = match self {
            Face::Alone(limit) => limit.set_rule(rule),
            Face::Key(limiter, _) => limiter.set_rule(rule),
        };
        set.is_ok()
    }

    pub(crate) fn peek_of(&self, key: u64, plan: Under<'_, R>) -> Snapshot {
        asked!(self, key, 1, plan, |ask| ask.peek())
    }

    pub(crate) fn take_of(&self, key: u64, n: u64, plan: Under<'_, R>, how: u64) -> Decision {
        match (self, plan, how % 8) {
            (_, _, 0) => asked!(self, key, n, plan, |ask| ask.at(self.now()).try_acquire()),
            (_, _, 1) => asked!(self, key, n, plan, |ask| ask.try_acquire()),
            (Face::Alone(limit), ..) if n == 1 => limit.try_acquire(),
            (Face::Alone(limit), ..) => limit.try_acquire_n(n),
            (Face::Key(limiter, _), Some(plan), _) => limiter.pin().key(&key).n(n).under(plan).try_acquire(),
            (Face::Key(limiter, _), None, 2) => limiter.pin().try_acquire_n(&key, n),
            (Face::Key(limiter, _), None, 3) => {
                limiter.try_acquire_batch(&[(&key, n)]).next().expect("an answer to each")
            }
            (Face::Key(limiter, _), None, 4) => limiter.pin().key(&key).n(n).at(self.now()).try_acquire(),
            (Face::Key(limiter, _), None, _) if n == 1 => limiter.try_acquire(&key),
            (Face::Key(limiter, _), None, _) => limiter.try_acquire_n(&key, n),
        }
    }

    /// Takes tokens if a part of the burst or of the limit stays, in percent.
    pub(crate) fn above_of(&self, key: u64, (n, keep): (u64, u8), plan: Under<'_, R>, how: u64) -> Decision {
        match (self, how % 4) {
            (_, 0) => asked!(self, key, n, plan, |ask| ask.keep(keep).at(self.now()).try_acquire()),
            (Face::Key(limiter, _), how @ 1..3) => {
                let pin = limiter.pin();
                let ask = pin.key(&key).n(n).keep(keep);
                let ask = plan.map_or(ask, |plan| ask.under(plan));
                if how == 1 { ask.at(self.now()).try_acquire() } else { ask.try_acquire() }
            }
            _ => asked!(self, key, n, plan, |ask| ask.keep(keep).try_acquire()),
        }
    }

    pub(crate) fn up_to_of(&self, key: u64, (n, keep): (u64, u8), plan: Under<'_, R>) -> Granted {
        asked!(self, key, n, plan, |ask| ask.keep(keep).acquire_up_to())
    }

    pub(crate) fn refund_of(&self, key: u64, n: u64, plan: Under<'_, R>) {
        asked!(self, key, n, plan, |ask| ask.refund());
    }

    pub(crate) fn hold_of(&self, key: u64, n: u64, plan: Under<'_, R>) -> Result<Hold<'_>, Denied> {
        asked!(self, key, n, plan, |ask| ask.hold())
    }
}

/// The key of a walk with one key.
const KEY: u64 = 1;

impl<'a> Subject for &'a Face {
    type Plan = &'a Plan;
    type Taken = Taken<'a>;

    fn now(&self) -> Moment {
        Face::now(self)
    }

    fn quota(&self) -> Quota {
        self.rule()
    }

    fn set_quota(&self, quota: Quota) -> bool {
        self.set_rule(quota)
    }

    fn plan(&self, quota: Quota) -> Option<&'a Plan> {
        let Face::Key(limiter, plans) = *self else { return None };
        let place = plans.iter().find(|place| place.get().is_none())?;
        let plan = limiter.plan(quota).ok()?;
        Some(place.get_or_init(|| plan))
    }

    fn remove(&self) -> bool {
        matches!(self, Face::Key(limiter, _) if limiter.remove(&KEY))
    }

    /// A look has the same answer as a take of nothing.
    fn look(&self, plan: Under<'a>) -> Answer {
        let seen = look(self.peek_of(KEY, plan));
        assert_eq!(self.take(0, plan).0.map(granted), Ok(seen));
        seen
    }

    fn take(&self, n: u64, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        (self.take_of(KEY, n, plan, n.wrapping_add(1)), None)
    }

    fn take_at(&self, now: Moment, n: u64, plan: Under<'a>) -> (Decision, Option<u64>) {
        (asked!(self, KEY, n, plan, |ask| ask.at(now).try_acquire()), None)
    }

    fn up_to(&self, n: u64, keep: u8, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        (Ok(self.up_to_of(KEY, (n, keep), plan)), None)
    }

    fn above(&self, n: u64, percent: u8, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        (self.above_of(KEY, (n, percent), plan, 2 * (n % 2) + u64::from(percent % 2)), None)
    }

    fn refund(&self, n: u64, plan: Under<'a>) -> Option<bool> {
        self.refund_of(KEY, n, plan);
        None
    }

    fn reserve(&self, n: u64, keep: u8, patience: Option<u64>, plan: Under<'a>) -> Reserved<Taken<'a>> {
        let made = match patience.map(Duration::from_nanos) {
            None => asked!(*self, KEY, n, plan, |ask| ask.keep(keep).reserve()),
            Some(patience) => asked!(*self, KEY, n, plan, |ask| ask.keep(keep).within(patience).reserve()),
        }?;
        // A reservation tells the bucket's state only when it is used.
        let answer = self.look(plan);
        let (delay, ready_at) = (made.delay(), made.ready_at());
        Ok(Made { answer, delay, ready_at, kept: Some(Taken::Reservation(made, n, answer)) })
    }

    /// A key has an entry even after a hold of 0 tokens.
    fn least_hold(&self) -> u64 {
        matches!(self, Face::Key(..)).into()
    }

    fn hold(&self, n: u64, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        match self.hold_of(KEY, n, plan) {
            Ok(hold) => (Ok(hold.granted()), Some(Taken::Hold(hold))),
            Err(refused) => (Err(refused), None),
        }
    }

    fn give_back(&self, taken: Taken<'a>) -> Returned {
        match taken {
            Taken::Reservation(..) => Returned::Unseen,
            Taken::Hold(_) => Returned::Stays,
        }
    }

    fn settle(&self, taken: Taken<'a>, actual: u64) -> Option<u64> {
        match taken {
            Taken::Reservation(reservation, n, seen) => {
                let given = reservation.commit();
                assert_eq!((given.tokens(), granted(given)), (n, seen));
                None
            }
            Taken::Hold(hold) => Some(hold.settle(actual)),
        }
    }
}
