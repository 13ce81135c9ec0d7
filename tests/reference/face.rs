//! A single bucket, or the bucket of a key, through the public face.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::cell::OnceCell;
use std::hash::BuildHasher;
use std::time::Duration;

use tollgate::{Hold, KeyLimit, Moment, Plan, Quota, RateLimiter, Reservation, TokenBucket};

use super::Answer;
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

fn key<'a>(
    limiter: &'a RateLimiter<u64>,
    n: u64,
    plan: Under<'a>,
) -> KeyLimit<'a, u64, u64, impl BuildHasher> {
    let limit = limiter.key(&1).n(n);
    plan.map_or(limit, |plan| limit.under(plan))
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
            Face::Alone(bucket) => bucket.quota(),
            Face::Key(limiter, _) => limiter.quota(),
        }
    }

    fn set_quota(&self, quota: Quota) -> bool {
        let set = match self {
            Face::Alone(bucket) => bucket.set_quota(quota),
            Face::Key(limiter, _) => limiter.set_quota(quota),
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
        let seen = look(match self {
            Face::Alone(bucket) => bucket.peek(),
            Face::Key(limiter, _) => key(limiter, 1, plan).peek(),
        });
        assert_eq!(self.take(0, plan).0.map(granted), Ok(seen));
        seen
    }

    fn take(&self, n: u64, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        let decision = match (self, plan) {
            (Face::Alone(bucket), _) => bucket.try_acquire_n(n),
            (Face::Key(limiter, _), None) if n.is_multiple_of(2) => limiter.try_acquire_n(&1, n),
            (Face::Key(limiter, _), None) => limiter.pin().try_acquire_n(&1, n),
            (Face::Key(limiter, _), Some(plan)) => limiter.pin().try_acquire_as(&1, n, plan),
        };
        (decision, None)
    }

    fn take_at(&self, now: Moment, n: u64, plan: Under<'a>) -> (Decision, Option<u64>) {
        let decision = match self {
            Face::Alone(bucket) => bucket.try_acquire_at(now, n),
            Face::Key(limiter, _) => key(limiter, n, plan).try_acquire_at(now),
        };
        (decision, None)
    }

    fn up_to(&self, n: u64, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        let given = match self {
            Face::Alone(bucket) => bucket.acquire_up_to(n),
            Face::Key(limiter, _) => key(limiter, n, plan).acquire_up_to(),
        };
        (Ok(given), None)
    }

    /// An even number is taken at a reading. An even part is kept by a guard, where both can be.
    fn above(&self, n: u64, percent: u8, plan: Under<'a>) -> (Decision, Option<Taken<'a>>) {
        let at = n.is_multiple_of(2).then(|| self.now());
        let pinned = percent.is_multiple_of(2);
        let decision = match (self, at, plan) {
            (Face::Alone(bucket), None, _) => bucket.n(n).keep(percent).try_acquire(),
            (Face::Alone(bucket), Some(now), _) => bucket.n(n).keep(percent).try_acquire_at(now),
            (Face::Key(limiter, _), None, None) if pinned && n == 1 => {
                limiter.pin().keep(percent).try_acquire(&1)
            }
            (Face::Key(limiter, _), None, None) if pinned => limiter.pin().keep(percent).try_acquire_n(&1, n),
            (Face::Key(limiter, _), None, Some(plan)) if pinned => {
                limiter.pin().keep(percent).try_acquire_as(&1, n, plan)
            }
            (Face::Key(limiter, _), Some(now), None) if pinned => {
                limiter.pin().keep(percent).try_acquire_at(now, &1, n)
            }
            (Face::Key(limiter, _), None, _) => key(limiter, n, plan).keep(percent).try_acquire(),
            (Face::Key(limiter, _), Some(now), _) => key(limiter, n, plan).keep(percent).try_acquire_at(now),
        };
        (decision, None)
    }

    fn refund(&self, n: u64, plan: Under<'a>) -> Option<bool> {
        match self {
            Face::Alone(bucket) => bucket.refund(n),
            Face::Key(limiter, _) => key(limiter, n, plan).refund(),
        }
        None
    }

    fn reserve(&self, n: u64, patience: Option<u64>, plan: Under<'a>) -> Reserved<Taken<'a>> {
        let made = match (*self, patience.map(Duration::from_nanos)) {
            (Face::Alone(bucket), None) => bucket.reserve(n),
            (Face::Alone(bucket), Some(patience)) => bucket.reserve_within(n, patience),
            (Face::Key(limiter, _), None) => key(limiter, n, plan).reserve(),
            (Face::Key(limiter, _), Some(patience)) => key(limiter, n, plan).reserve_within(patience),
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
        let held = match *self {
            Face::Alone(bucket) => bucket.hold(n),
            Face::Key(limiter, _) => key(limiter, n, plan).hold(),
        };
        match held {
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
