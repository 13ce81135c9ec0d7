//! Overflow buckets, which keys without room share: one set under the limiter's quota, and one
//! under each plan.
//!
//! A bucket is under one quota only. Otherwise a key of a slow plan could take the tokens that the
//! bucket earns for a key of a fast plan.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::bucket::atomic::Bucket;
use crate::quota::rate::Quota;
use crate::word::plan::Plan;

/// Number of buckets of a set.
const BUCKETS: usize = 1024;
/// Number of plans that have a set. Keys without room under any other plan are denied.
const PLANS: usize = 64;

/// The policy for a new key that finds no room: no bucket that it could replace can be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The key shares one of 1,024 buckets, chosen by hash, with other such keys under the same
    /// quota.
    ///
    /// The limit holds for each key. Keys that share a bucket use up each other's tokens, and their
    /// refunds are lost. A key that enters the store later starts with the level of that bucket.
    ///
    /// Each [plan](crate::Plan) has 1,024 buckets of its own, allocated when the first is needed. A
    /// limiter has them for 64 plans. Keys without room under any other plan are denied.
    #[default]
    Share,
    /// The key is denied, with [`Reason::Full`](crate::Reason::Full).
    Deny,
    /// Each take is decided as by a full bucket, which stays full. More than the burst is denied.
    Allow,
}

/// The set of overflow buckets of a key: of the limiter's quota, of a plan, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowSet {
    Own,
    Plan(u8),
    None,
}

impl OverflowSet {
    /// Returns the set of keys under this plan, or under none.
    pub(crate) fn of(plan: Option<&Plan>) -> OverflowSet {
        match plan {
            None => OverflowSet::Own,
            Some(plan) if plan.overflow_set == Plan::OWN_SET => OverflowSet::Own,
            Some(plan) if usize::from(plan.overflow_set) < PLANS => OverflowSet::Plan(plan.overflow_set),
            Some(_) => OverflowSet::None,
        }
    }
}

pub(crate) struct OverflowBuckets {
    own: Box<[Bucket]>,
    plans: [OnceLock<Box<[Bucket]>>; PLANS],
    /// Quotas of the plans that have a set, in the order of the sets.
    known: Mutex<Vec<Quota>>,
    /// A permanently full bucket, shown to keys whose plan has no set.
    full: Bucket,
}

impl OverflowBuckets {
    pub(crate) fn new() -> OverflowBuckets {
        OverflowBuckets {
            own: set(),
            plans: [const { OnceLock::new() }; PLANS],
            known: Mutex::default(),
            full: Bucket::new(),
        }
    }

    /// Returns the plan with its set. Plans of one quota, compiled before and after a change of the
    /// limiter's quota, have the same set.
    pub(crate) fn admit(&self, plan: Plan) -> Plan {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let index = known.iter().position(|quota| *quota == plan.quota()).unwrap_or(known.len());
        if index == PLANS {
            return plan;
        }
        if index == known.len() {
            known.push(plan.quota());
        }
        // Below 64.
        plan.with_overflow_set(index as u8)
    }

    /// Returns the bucket of keys with this hash.
    pub(crate) fn bucket(&self, overflow_set: OverflowSet, hash: u32) -> &Bucket {
        let set = match overflow_set {
            OverflowSet::Own => &self.own,
            OverflowSet::Plan(index) => self.plans[usize::from(index)].get_or_init(set),
            OverflowSet::None => return &self.full,
        };
        &set[(hash >> (u32::BITS - BUCKETS.ilog2())) as usize]
    }
}

fn set() -> Box<[Bucket]> {
    (0..BUCKETS).map(|_| Bucket::new()).collect()
}
