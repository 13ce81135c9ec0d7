//! A bucket alone, or that of a key.

use std::time::Duration;

use tollgate::{
    Denied, Granted, Hold, InvalidQuota, KeyLimit, Moment, Plan, Quota, RateLimiter, Reservation, Snapshot,
    TokenBucket,
};

pub(super) enum Face {
    Alone(Box<TokenBucket>),
    Key(RateLimiter<u64>),
}

/// A call is under a plan, or under the own quota. Of a bucket alone it is under none.
type Under<'a> = Option<&'a Plan>;

fn key<'a>(
    limiter: &'a RateLimiter<u64>,
    n: u64,
    plan: Under<'a>,
) -> KeyLimit<'a, u64, u64, impl std::hash::BuildHasher> {
    let limit = limiter.key(&1).n(n);
    plan.map_or(limit, |plan| limit.under(plan))
}

impl Face {
    pub(super) fn is_key(&self) -> bool {
        matches!(self, Face::Key(_))
    }

    pub(super) fn plan(&self, quota: Quota) -> Option<Plan> {
        match self {
            Face::Alone(_) => None,
            Face::Key(limiter) => limiter.plan(quota).ok(),
        }
    }

    pub(super) fn remove(&self) -> bool {
        match self {
            Face::Alone(_) => false,
            Face::Key(limiter) => limiter.remove(&1),
        }
    }

    pub(super) fn now(&self) -> Moment {
        match self {
            Face::Alone(bucket) => bucket.now(),
            Face::Key(limiter) => limiter.now(),
        }
    }

    pub(super) fn quota(&self) -> Quota {
        match self {
            Face::Alone(bucket) => bucket.quota(),
            Face::Key(limiter) => limiter.quota(),
        }
    }

    pub(super) fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        match self {
            Face::Alone(bucket) => bucket.set_quota(quota),
            Face::Key(limiter) => limiter.set_quota(quota),
        }
    }

    pub(super) fn peek(&self, plan: Under<'_>) -> Snapshot {
        match self {
            Face::Alone(bucket) => bucket.peek(),
            Face::Key(limiter) => key(limiter, 1, plan).peek(),
        }
    }

    pub(super) fn take(&self, n: u64, plan: Under<'_>) -> Result<Granted, Denied> {
        match (self, plan) {
            (Face::Alone(bucket), _) => bucket.try_acquire_n(n),
            (Face::Key(limiter), None) => limiter.try_acquire_n(&1, n),
            (Face::Key(limiter), Some(plan)) => limiter.pin().try_acquire_as(&1, n, plan),
        }
    }

    pub(super) fn take_at(&self, now: Moment, n: u64, plan: Under<'_>) -> Result<Granted, Denied> {
        match self {
            Face::Alone(bucket) => bucket.try_acquire_at(now, n),
            Face::Key(limiter) => key(limiter, n, plan).try_acquire_at(now),
        }
    }

    pub(super) fn up_to(&self, n: u64, plan: Under<'_>) -> Granted {
        match self {
            Face::Alone(bucket) => bucket.acquire_up_to(n),
            Face::Key(limiter) => key(limiter, n, plan).acquire_up_to(),
        }
    }

    pub(super) fn refund(&self, n: u64, plan: Under<'_>) {
        match self {
            Face::Alone(bucket) => bucket.refund(n),
            Face::Key(limiter) => key(limiter, n, plan).refund(),
        }
    }

    pub(super) fn reserve<'a>(
        &'a self,
        n: u64,
        patience: Option<Duration>,
        plan: Under<'a>,
    ) -> Result<Reservation<'a>, Denied> {
        match (self, patience) {
            (Face::Alone(bucket), None) => bucket.reserve(n),
            (Face::Alone(bucket), Some(patience)) => bucket.reserve_within(n, patience),
            (Face::Key(limiter), None) => key(limiter, n, plan).reserve(),
            (Face::Key(limiter), Some(patience)) => key(limiter, n, plan).reserve_within(patience),
        }
    }

    pub(super) fn hold<'a>(&'a self, n: u64, plan: Under<'a>) -> Result<Hold<'a>, Denied> {
        match self {
            Face::Alone(bucket) => bucket.hold(n),
            Face::Key(limiter) => key(limiter, n, plan).hold(),
        }
    }
}
