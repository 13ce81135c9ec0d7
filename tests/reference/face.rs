//! A single bucket, or the bucket of a key, through the public face.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::cell::OnceCell;
use std::time::Duration;

use tollgate::{Hold, Moment, Plan, Quota, RateLimiter, Reservation, TokenBucket};
use tollgate_testing::reference::Answer;

use super::answers::{granted, look};
use super::subject::{Decision, Made, Reserved, Returned, Subject};

pub(crate) enum Face {
    Alone(Box<TokenBucket>),
    /// A limiter and the plans that were made for it.
    Key(RateLimiter<u64>, Box<[OnceCell<Plan>; 8]>),
}

/// Tokens that may be given back.
pub(crate) enum Taken<'a> {
    /// A reservation, its tokens, and the look at its making.
    Reservation(Reservation<'a>, u64, Answer),
    Hold(Hold<'a>),
}

/// The plan of a call, or the own quota. A single bucket has no plans.
type Under<'a> = Option<&'a Plan>;

/// Runs an expression on the request for tokens of a bucket, under the plan of a call.
macro_rules! asked {
    ($face:expr, $n:expr, $plan:expr, |$ask:ident| $run:expr) => {
        match $face {
            Face::Alone(bucket) => {
                let $ask = bucket.ask().n($n);
                $run
            }
            Face::Key(limiter, _) => {
                let ask = limiter.key(&1).n($n);
                let $ask = $plan.map_or(ask, |plan| ask.under(plan));
                $run
            }
        }
    };
}

impl Face {
    pub(crate) fn alone(bucket: TokenBucket) -> Face {
        Face::Alone(Box::new(bucket))
    }

    pub(crate) fn key(limiter: RateLimiter<u64>) -> Face {
        Face::Key(limiter, Default::default())
    }
}

impl<'a> Subject for &'a Face {
    type Plan = &'a Plan;
    type Taken = Taken<'a>;

    fn now(&self) -> Moment {
        match self {
            Face::Alone(bucket) => bucket.now(),
            Face::Key(limiter, _) => limiter.now(),
        }
    }

    fn quota(&self) -> Quota {
        match self {
            Face::Alone(bucket) => bucket.rule(),
            Face::Key(limiter, _) => limiter.rule(),
        }
    }

    fn set_quota(&self, quota: Quota) -> bool {
        let set = match self {
            Face::Alone(bucket) => bucket.set_rule(quota),
            Face::Key(limiter, _) => limiter.set_rule(quota),
        };
        set.is_ok()
    }

    fn plan(&self, quota: Quota) -> Option<&'a Plan> {
        let Face::Key(limiter, plans) = *self else { return None };
        let place = plans.iter().find(|place| place.get().is_none())?;
        let plan = limiter.plan(quota).ok()?;
        Some(place.get_or_init(|| plan))
    }

    fn remove(&self) -> bool {
        matches!(self, Face::Key(limiter, _) if limiter.remove(&1))
    }

    /// A look has the same answer as a take of nothing.
    fn look(&self, plan: Under<'a>) -> Answer {
        let seen = look(asked!(self, 1, plan, |ask| ask.peek()));
        assert_eq!(self.take(0, plan).0.map(granted), Ok(seen));
        seen
    }

    fn take(&self, n: u64, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        let decision = match (self, plan) {
            (Face::Alone(bucket), _) => bucket.try_acquire_n(n),
            (Face::Key(limiter, _), None) if n.is_multiple_of(2) => limiter.try_acquire_n(&1, n),
            (Face::Key(limiter, _), None) => limiter.pin().try_acquire_n(&1, n),
            (Face::Key(limiter, _), Some(plan)) => limiter.pin().key(&1).n(n).under(plan).try_acquire(),
        };
        (decision, None)
    }

    fn take_at(&self, now: Moment, n: u64, plan: Under<'a>) -> (Decision, Option<u64>) {
        (asked!(self, n, plan, |ask| ask.at(now).try_acquire()), None)
    }

    fn up_to(&self, n: u64, keep: u8, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        (Ok(asked!(self, n, plan, |ask| ask.keep(keep).acquire_up_to())), None)
    }

    /// An even number is taken at a reading. An even part is kept by a guard, where both can be.
    fn above(&self, n: u64, percent: u8, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        let at = n.is_multiple_of(2).then(|| self.now());
        let decision = match (self, at, plan) {
            (Face::Key(limiter, _), None, None) if percent.is_multiple_of(2) => {
                limiter.pin().key(&1).n(n).keep(percent).try_acquire()
            }
            (Face::Key(limiter, _), None, Some(plan)) if percent.is_multiple_of(2) => {
                limiter.pin().key(&1).n(n).under(plan).keep(percent).try_acquire()
            }
            (Face::Key(limiter, _), Some(now), None) if percent.is_multiple_of(2) => {
                limiter.pin().key(&1).n(n).at(now).keep(percent).try_acquire()
            }
            (_, None, _) => asked!(self, n, plan, |ask| ask.keep(percent).try_acquire()),
            (_, Some(now), _) => asked!(self, n, plan, |ask| ask.keep(percent).at(now).try_acquire()),
        };
        (decision, None)
    }

    fn refund(&self, n: u64, plan: Under<'a>) -> Option<bool> {
        asked!(self, n, plan, |ask| ask.refund());
        None
    }

    fn reserve(&self, n: u64, keep: u8, patience: Option<u64>, plan: Under<'a>) -> Reserved<Taken<'a>> {
        let made = match patience.map(Duration::from_nanos) {
            None => asked!(*self, n, plan, |ask| ask.keep(keep).reserve()),
            Some(patience) => asked!(*self, n, plan, |ask| ask.keep(keep).within(patience).reserve()),
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
        match asked!(*self, n, plan, |ask| ask.hold()) {
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
