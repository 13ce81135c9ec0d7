//! Overflow buckets, which keys without room share: one set under the limiter's quota, and one
//! under each plan.
//!
//! A bucket is under one quota only. Otherwise a key of a slow plan could take the tokens that the
//! bucket earns for a key of a fast plan.
//!
//! A set is made when a key is charged to one of its buckets. *Invariant:* a set that is not made
//! reads as full buckets, because no bucket of it was charged. A charge, and so the making of the
//! set before it, is ordered with insertions by the fences of [`protocol`](super::protocol).

use std::sync::{Mutex, PoisonError};

use crate::bucket::atomic::Bucket;
use crate::rule::rate::Quota;
use crate::sync::OnceLock;
use crate::word::plan::PlanTerms;

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
    pub(crate) fn of(plan: Option<&PlanTerms>) -> OverflowSet {
        match plan {
            None => OverflowSet::Own,
            Some(plan) if plan.overflow_set == PlanTerms::OWN_SET => OverflowSet::Own,
            Some(plan) if usize::from(plan.overflow_set) < PLANS => OverflowSet::Plan(plan.overflow_set),
            Some(_) => OverflowSet::None,
        }
    }
}

pub(crate) struct OverflowBuckets {
    own: Set,
    no_key: Bucket,
    plans: OnceLock<Box<PlanSets>>,
    /// A permanently full bucket, shown in place of one that is not made.
    full: Bucket,
}

/// The sets of plans, made with the first plan.
struct PlanSets {
    sets: [Set; PLANS],
    /// Quotas of the plans that have a set, in the order of the sets.
    known: Mutex<Vec<Quota>>,
}

type Set = OnceLock<Box<[Bucket]>>;

impl OverflowBuckets {
    pub(crate) fn new() -> OverflowBuckets {
        OverflowBuckets {
            own: OnceLock::new(),
            no_key: Bucket::new(),
            plans: OnceLock::new(),
            full: Bucket::new(),
        }
    }

    fn plans(&self) -> &PlanSets {
        let make = || PlanSets { sets: std::array::from_fn(|_| OnceLock::new()), known: Mutex::default() };
        self.plans.get_or_init(|| Box::new(make()))
    }

    /// Returns the plan with its set. Plans of one quota, compiled before and after a change of the
    /// limiter's quota, have the same set.
    pub(crate) fn admit(&self, plan: PlanTerms) -> PlanTerms {
        match self.set_of(plan.quota()) {
            // Below 64.
            Some(index) => plan.with_overflow_set(index as u8),
            None => plan,
        }
    }

    /// Returns the number of a plan's set; `None` if all sets are of other plans.
    fn set_of(&self, plan: Quota) -> Option<usize> {
        let mut known = self.plans().known.lock().unwrap_or_else(PoisonError::into_inner);
        let index = known.iter().position(|quota| *quota == plan).unwrap_or(known.len());
        if index == known.len() && index < PLANS {
            known.push(plan);
        }
        (index < PLANS).then_some(index)
    }

    /// Calls `see` with each set of buckets that was made: the limiter's own, and those of plans.
    pub(crate) fn each_set(&self, mut see: impl FnMut(Option<Quota>, &[Bucket])) {
        if let Some(own) = self.own.get() {
            see(None, own);
        }
        let Some(plans) = self.plans.get() else { return };
        let known = plans.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (quota, set) in known.iter().zip(&plans.sets) {
            if let Some(set) = set.get() {
                see(Some(*quota), set);
            }
        }
    }

    /// Makes the set of a plan, or the limiter's own, and returns its buckets. They are none if all
    /// sets are of other plans, whose keys without room are denied.
    pub(crate) fn made_for(&self, plan: Option<Quota>) -> &[Bucket] {
        match plan.map(|plan| self.set_of(plan)) {
            None => Self::made(&self.own),
            Some(Some(index)) => Self::made(&self.plans().sets[index]),
            Some(None) => &[],
        }
    }

    fn made(set: &Set) -> &[Bucket] {
        set.get_or_init(|| (0..BUCKETS).map(|_| Bucket::new()).collect())
    }

    /// Looks at each bucket of the limiter's own quota, or window, and at that without a key.
    pub(crate) fn each_own(&self, look: impl Fn(&Bucket)) {
        self.own.get().into_iter().flatten().chain([&self.no_key]).for_each(look);
    }

    /// Returns the bucket of keys with this hash, to charge it.
    pub(crate) fn bucket(&self, overflow_set: OverflowSet, hash: u32) -> &Bucket {
        let set = match overflow_set {
            OverflowSet::Own => &self.own,
            OverflowSet::Plan(index) => &self.plans().sets[usize::from(index)],
            OverflowSet::None => return &self.full,
        };
        &Self::made(set)[index(hash)]
    }

    /// Returns the bucket of all requests without a key.
    ///
    /// It is of no set: a key starts with the level of its overflow bucket, and such requests would
    /// empty that of one key in 1,024.
    pub(crate) fn no_key(&self) -> &Bucket {
        &self.no_key
    }

    /// Returns the bucket of keys with this hash, to look at it: a full one if none was charged.
    pub(crate) fn bucket_or_full(&self, overflow_set: OverflowSet, hash: u32) -> &Bucket {
        let set = match overflow_set {
            OverflowSet::Own => self.own.get(),
            OverflowSet::Plan(index) => self.plans().sets[usize::from(index)].get(),
            OverflowSet::None => None,
        };
        set.map_or(&self.full, |set| &set[index(hash)])
    }
}

/// Returns the index of the bucket in its set.
fn index(hash: u32) -> usize {
    (hash >> (u32::BITS - BUCKETS.ilog2())) as usize
}
