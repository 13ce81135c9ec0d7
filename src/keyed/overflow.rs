//! Overflow buckets, which keys without room share: one set under the limiter's quota, and one
//! under each plan. The bucket of the requests without a key is here as well.
//!
//! A bucket is under one quota only. Otherwise a key of a slow plan could take the tokens that the
//! bucket earns for a key of a fast plan.
//!
//! A set is made when a key is charged to one of its buckets. *Invariant:* a set that is not made
//! reads as full buckets, because no bucket of it was charged. A charge, and so the making of the
//! set before it, is ordered with insertions by the fences of [`protocol`](super::protocol).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bucket::atomic::Bucket;
use crate::rule::rate::Quota;
use crate::sync::OnceLock;
use crate::word::plan::PlanTerms;
use crate::word::state::State;

/// Number of buckets of a set.
pub(crate) const BUCKETS: usize = 1024;
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
    /// Whether the own set has takes of restored keys that may be under any plan. The set of a plan
    /// then begins as the own one.
    any_plan: AtomicBool,
    no_key: Bucket,
    plans: OnceLock<Box<PlanSets>>,
    /// Most ticks in which a plan earns a unit; 0 if there is none.
    slowest_unit: AtomicU64,
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

impl PlanSets {
    fn known(&self) -> MutexGuard<'_, Vec<Quota>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OverflowBuckets {
    pub(crate) fn new() -> OverflowBuckets {
        OverflowBuckets {
            own: OnceLock::new(),
            any_plan: AtomicBool::new(false),
            no_key: Bucket::new(),
            plans: OnceLock::new(),
            slowest_unit: AtomicU64::new(0),
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
        self.slowest_unit.fetch_max(plan.ticks_of_a_unit(), Relaxed);
        match self.set_of(plan.quota()) {
            // Below 64.
            Some(index) => plan.with_overflow_set(index as u8),
            None => plan,
        }
    }

    /// Returns the most ticks in which a plan earns a unit; 0 if there is none.
    pub(crate) fn slowest_unit(&self) -> u64 {
        self.slowest_unit.load(Relaxed)
    }

    /// Returns the number of a plan's set; `None` if all sets are of other plans.
    fn set_of(&self, plan: Quota) -> Option<usize> {
        let mut known = self.plans().known();
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
        let known = plans.known();
        for (quota, set) in known.iter().zip(&plans.sets) {
            if let Some(set) = set.get() {
                see(Some(*quota), set);
            }
        }
    }

    /// Returns whether a key may have been charged outside of the store.
    pub(crate) fn are_made(&self) -> bool {
        self.own.get().is_some() || self.plans.get().is_some()
    }

    /// Makes the set of a plan, or the limiter's own, and returns its buckets. They are none if all
    /// sets are of other plans, whose keys without room are denied.
    pub(crate) fn made_for(&self, plan: Option<Quota>) -> &[Bucket] {
        match plan.map(|plan| self.set_of(plan)) {
            None => Self::made(&self.own),
            Some(Some(index)) => self.made_of_plan(index),
            Some(None) => &[],
        }
    }

    fn made(set: &Set) -> &[Bucket] {
        set.get_or_init(|| (0..BUCKETS).map(|_| Bucket::new()).collect())
    }

    fn made_of_plan(&self, index: usize) -> &[Bucket] {
        let plans = self.plans();
        plans.sets[index].get_or_init(|| {
            // Not while a restored key takes of all sets.
            let _known = plans.known();
            match self.any_plan() {
                true => Self::made(&self.own).iter().map(|own| Bucket::from_state(own.state())).collect(),
                false => (0..BUCKETS).map(|_| Bucket::new()).collect(),
            }
        })
    }

    pub(crate) fn any_plan(&self) -> bool {
        self.any_plan.load(Relaxed)
    }

    /// Makes the sets of plans that are not made begin as the limiter's own.
    pub(crate) fn set_any_plan(&self) {
        self.any_plan.store(true, Relaxed);
    }

    /// Takes of the bucket of keys with this hash in each set: the plan of the key is not known.
    pub(crate) fn take_under_any_plan(&self, hash: u32, take: impl Fn(&Bucket)) {
        let plans = self.plans();
        let _known = plans.known();
        self.set_any_plan();
        Self::made(&self.own);
        self.sets_made().for_each(|set| take(&set[number_of(hash)]));
    }

    /// Calls `see` with the state of each charged bucket of keys with this hash, under any plan.
    pub(crate) fn each_of(&self, hash: u32, see: impl FnMut(State)) {
        let states = self.sets_made().map(|set| set[number_of(hash)].state());
        states.filter(|state| state.is_level()).for_each(see);
    }

    fn sets_made(&self) -> impl Iterator<Item = &[Bucket]> {
        let of_plans = self.plans.get().into_iter().flat_map(|plans| &plans.sets);
        [&self.own].into_iter().chain(of_plans).filter_map(|set| set.get().map(|set| &**set))
    }

    /// Looks at each bucket of the limiter's own quota, or window, and at that without a key.
    pub(crate) fn each_own(&self, look: impl Fn(&Bucket)) {
        self.own.get().into_iter().flatten().chain([&self.no_key]).for_each(look);
    }

    /// Returns the bucket of keys with this hash, to charge it.
    pub(crate) fn bucket(&self, overflow_set: OverflowSet, hash: u32) -> &Bucket {
        let set = match overflow_set {
            OverflowSet::Own => Self::made(&self.own),
            OverflowSet::Plan(index) => self.made_of_plan(index.into()),
            OverflowSet::None => return &self.full,
        };
        &set[number_of(hash)]
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
            OverflowSet::Plan(index) => match self.plans().sets[usize::from(index)].get() {
                None if self.any_plan() => self.own.get(),
                set => set,
            },
            OverflowSet::None => None,
        };
        set.map_or(&self.full, |set| &set[number_of(hash)])
    }
}

/// Returns the number of the bucket in its set.
pub(crate) fn number_of(hash: u32) -> usize {
    (hash >> (u32::BITS - BUCKETS.ilog2())) as usize
}
