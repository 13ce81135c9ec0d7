//! The buckets that keys without room share: a set under the limiter's own quota, and one under each plan.
//!
//! A bucket is under one quota only: what it earns for a key of a fast plan would be taken by one of a slow plan.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::bucket::atomic::Bucket;
use crate::quota::rate::Quota;
use crate::word::plan::Plan;

/// Buckets of a set.
const BUCKETS: usize = 1024;
/// Plans that have a set. Keys under others that find no room are denied.
const PLANS: usize = 64;

/// What becomes of a new key when the limiter holds its maximum and no bucket can be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// It shares one of 1,024 buckets with other such keys, chosen by hash, under the same quota. The
    /// law holds for each key; keys that share a bucket may refuse each other, and what they refund is lost. A key that
    /// enters the map later brings the level of that bucket with it.
    ///
    /// Each [plan](crate::Plan) has 1,024 buckets of its own, made when the first is needed. A limiter has them for 64
    /// plans; keys under any other are denied when there is no room.
    #[default]
    Share,
    /// It is denied, with [`Reason::Full`](crate::Reason::Full).
    Deny,
    /// It is granted and not counted against anything.
    Allow,
}

/// Which set: that of the limiter's own quota, that of a plan, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowSet {
    Own,
    Plan(u8),
    None,
}

impl OverflowSet {
    /// The set of keys under this plan, or under none.
    pub(crate) fn of(plan: Option<&Plan>) -> OverflowSet {
        match plan {
            None => OverflowSet::Own,
            Some(plan) if usize::from(plan.overflow_set) < PLANS => OverflowSet::Plan(plan.overflow_set),
            Some(_) => OverflowSet::None,
        }
    }
}

pub(crate) struct OverflowBuckets {
    own: Box<[Bucket]>,
    plans: [OnceLock<Box<[Bucket]>>; PLANS],
    /// The quotas of plans that have a set, in order. Locked while one is compiled.
    known: Mutex<Vec<Quota>>,
    /// Never charged: what a key is told that has no share.
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

    /// The plan with its share: plans of one quota, made before and after a change of the limiter's, have the same.
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

    /// The bucket of keys with this hash.
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
