//! What all handles to one limiter share: the map, its bound, and what happens at the bound.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use papaya::LocalGuard;

use crate::bucket::{Bucket, Read};
use crate::builder::{Builder, WhenFull};
use crate::clock::Moment;
use crate::decision::{Denied, Granted, Snapshot};
use crate::entry::{At, Done, Now, Place, Rules, Under};
use crate::eviction::{Look, Ring};
use crate::key::{Alike, ByKey, Carried, Map, Stored, Tag, ToKey};
use crate::observer::Extras;
use crate::plan::Plan;
use crate::quota::{InvalidQuota, Quota};
use crate::reservation::{Hold, Ledger, Receipt, Reservation, Reserved};
use crate::state::{Outcome, Spot, State};
use crate::step::{Reserve, Step, Take, TakeUpTo};
use crate::terms::{Pace, Reading, Terms};

/// Buckets that keys without room share.
const OVERFLOW: usize = 1024;
/// Keys of one hash that are held. papaya probes some 30 places at least and then moves to a larger table, for ever
/// if that does not spread the keys.
const MOST_ALIKE: usize = 8;

pub(crate) struct Shared<K, S> {
    pub(crate) map: Map<K>,
    hasher: S,
    pub(crate) rules: Rules,
    pub(crate) extras: Extras,
    pub(crate) when_full: WhenFull,
    /// Which of these plans a key is under.
    plans: Option<Box<Plans<K>>>,
    /// No plans to choose from, and nobody looks on: one test in the hot path.
    plain: bool,
    id: u64,
    overflow: Box<[Bucket]>,
    ring: Ring,
    counters: CachePadded<Counters>,
}

struct Plans<K> {
    plans: Vec<Plan>,
    choose: Choose<K>,
}

/// Chooses a plan for a key, by its place in a list.
pub(crate) type Choose<K> = Box<dyn Fn(&K) -> Option<usize> + Send + Sync>;

#[derive(Default)]
struct Counters {
    evicted: AtomicU64,
    shared: AtomicU64,
    refused_full: AtomicU64,
    allowed_full: AtomicU64,
}

/// What a limiter holds and did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys held now.
    pub keys: usize,
    /// Buckets evicted, full, to make room or by [`evict_idle`](crate::RateLimiter::evict_idle).
    pub evicted: u64,
    /// Decisions on shared buckets, by [`WhenFull::Share`].
    pub shared: u64,
    /// Decisions denied for want of room, by [`WhenFull::Deny`].
    pub refused_full: u64,
    /// Decisions granted for want of room, by [`WhenFull::Allow`].
    pub allowed_full: u64,
    /// Decisions granted by [shadow mode](Builder::shadow) that would have been denied.
    pub overruled: u64,
}

impl<K, S> Shared<K, S> {
    pub(crate) fn new(set: Builder<K, S>) -> Shared<K, S> {
        /// Tells limiters apart.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (rules, extras) = set.settings.finish();
        let mut shared = Shared {
            map: Map::with_capacity_and_hasher(set.presize.min(set.max_keys), Carried::default()),
            hasher: set.hasher,
            rules,
            extras,
            when_full: set.when_full,
            plans: None,
            plain: false,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            overflow: (0..OVERFLOW).map(|_| Bucket::new()).collect(),
            ring: Ring::new(set.max_keys),
            counters: CachePadded::default(),
        };
        shared.plans = set.plans.map(|(quotas, choose)| {
            let compile = |quota| shared.plan(quota).expect("the builder has tried it");
            Box::new(Plans { plans: quotas.into_iter().map(compile).collect(), choose })
        });
        shared.plain = shared.plans.is_none() && shared.extras.observer.is_none();
        shared
    }

    pub(crate) fn plan(&self, quota: Quota) -> Result<Plan, InvalidQuota> {
        let plan = self.rules.source.plan(self.id, quota)?;
        self.rules.admit_plan(plan.ticks_to_fill());
        Ok(plan)
    }

    pub(crate) fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        self.rules.source.set(quota, &self.rules.clock)?;
        // Buckets may be due earlier than the hand was told.
        self.ring.wake();
        Ok(())
    }
}

impl<K: Eq, S> Shared<K, S> {
    pub(crate) fn stats(&self) -> Stats {
        let Counters { evicted, shared, refused_full, allowed_full } = &*self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys: self.map.len(),
            evicted: count(evicted),
            shared: count(shared),
            refused_full: count(refused_full),
            allowed_full: count(allowed_full),
            overruled: self.extras.overruled(),
        }
    }
}

/// A key's place in papaya's map.
pub(crate) struct Slot<'a, K, S, Q: ?Sized> {
    shared: &'a Shared<K, S>,
    guard: &'a LocalGuard<'a>,
    key: ByKey<'a, Q>,
}

impl<K, S, Q: ?Sized> Clone for Slot<'_, K, S, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, S, Q: ?Sized> Copy for Slot<'_, K, S, Q> {}

impl<'a, K: Hash + Eq, S: BuildHasher, Q: ToKey<K> + ?Sized> Place<'a> for Slot<'a, K, S, Q> {
    #[inline(always)]
    fn find(self) -> Option<&'a Bucket> {
        self.shared.map.get(&self.key, self.guard)
    }

    fn admit<P: Pace>(self, read: impl Read<Reading<P>>, step: impl Step) -> Option<Done<P>> {
        self.shared.admit(self, read, step)
    }

    fn bury(self) {
        let map = &self.shared.map;
        let _ = map.remove_if(&self.key, |_, bucket| bucket.state() == State::SEALED, self.guard);
    }

    fn overflow(self) -> &'a Bucket {
        &self.shared.overflow[share_of(self.key.hash)]
    }
}

/// The place among the overflow buckets of keys with this hash.
fn share_of(hash: u32) -> usize {
    (hash >> (u32::BITS - OVERFLOW.ilog2())) as usize
}

/// An outcome on a key's bucket, with what the public answers are made of.
pub(crate) trait Answer {
    type Answer;
    /// `plan` is the one the key is under.
    fn of<P: Pace>(self, done: Done<P>, plan: Option<Plan>) -> Self::Answer;
}

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    #[inline]
    pub(crate) fn place<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        guard: &'a LocalGuard<'a>,
        key: &'a Q,
    ) -> Slot<'a, K, S, Q> {
        Slot { shared: self, guard, key: ByKey::new(&self.hasher, key) }
    }

    /// The plan of a call, or that of the key.
    fn plan_of<Q: ToKey<K> + ?Sized>(
        &self,
        place: Slot<'_, K, S, Q>,
        plan: Option<&Plan>,
    ) -> Result<Option<Plan>, Denied> {
        match (plan, &self.plans) {
            (None, None) => Ok(None),
            (Some(plan), _) if plan.limiter != self.id => Err(Denied::foreign_plan()),
            (Some(plan), _) => Ok(Some(*plan)),
            (None, Some(plans)) => Ok(plans.of(place)),
        }
    }

    /// Takes tokens of the key's bucket, under a plan and at a reading that was taken before if there are.
    fn take<Q: ToKey<K> + ?Sized, A: Answer>(
        &self,
        place: Slot<'_, K, S, Q>,
        ask: Ask<'_>,
        step: impl Step,
        answer: A,
    ) -> A::Answer {
        let rules = &self.rules;
        match (self.plan_of(place, ask.plan), ask.now) {
            (Ok(None), None) => answer.of(self.run(place, Now(rules), step), None),
            (Ok(None), Some(now)) => answer.of(self.run(place, At(rules, now), step), None),
            (Ok(Some(plan)), None) => answer.of(self.run(place, Under(Now(rules), plan), step), Some(plan)),
            (Ok(Some(plan)), Some(now)) => {
                answer.of(self.run(place, Under(At(rules, now), plan), step), Some(plan))
            }
            (Err(denied), _) => answer.of::<Terms>(Err(denied), None),
        }
    }

    #[inline]
    fn run<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Done<P> {
        self.rules.acquire(place, read, step)
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn admit<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Option<Done<P>> {
        let ByKey { hash, key } = place.key;
        // A new reading: that of a reserved word is never one from before.
        let reading = read.read(State::FULL);
        if step.is_vain(&reading.pace) {
            return Some(Ok(self.rules.peek(place, read, step)));
        }
        let now = reading.nanos;
        // Whoever took the last room may have done so for this very key.
        let no_room = |due| match place.find() {
            Some(_) => None,
            None => self.without_room(place, read, step, reading, due),
        };
        if Alike::count(&self.map, hash, place.guard) >= MOST_ALIKE {
            return no_room(Some(now));
        }
        let mut ticket = match self.ring.admit(now, |tag| self.look(place.guard, tag)) {
            Ok(ticket) => ticket,
            Err(due) => return no_room(due),
        };
        let key = key.to_key();
        let stored = Stored { tag: ticket.admits(hash), key };
        let Ok(bucket) = self.map.try_insert(stored, Bucket::new(), place.guard) else {
            ticket.free();
            return None;
        };
        // While the ticket is held, the hand passes by.
        self.rules.first_charge(bucket, place.overflow(), read, step).map(Ok)
    }

    fn without_room<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
        reading: Reading<P>,
        due: Option<u64>,
    ) -> Option<Done<P>> {
        match self.when_full {
            WhenFull::Share => {
                let (outcome, reading) = self.rules.acquire_overflow(place, read, step)?;
                self.counters.shared.fetch_add(1, Ordering::Relaxed);
                Some(Ok((Outcome { spot: Spot::Overflow(place.key.hash), ..outcome }, reading)))
            }
            WhenFull::Deny => {
                self.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(reading.nanos, due)))
            }
            WhenFull::Allow => {
                self.counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                let (pace, terms) = (&reading.pace, reading.pace.terms());
                let taken = terms.units(step.most()).min(pace.capacity() - terms.floor);
                let level = pace.capacity() - taken;
                let outcome = Outcome { granted: true, taken, level, lag: 0, spot: Spot::Nowhere };
                Some(Ok((outcome, reading)))
            }
        }
    }

    /// Evicts the entry of this tag, if it is still there and may be evicted.
    fn look(&self, guard: &LocalGuard<'_>, tag: Tag) -> Look {
        let Some(bucket) = self.map.get(&tag, guard) else { return Look::Gone };
        match self.rules.seal_if_idle(bucket) {
            Ok(sealed) => {
                self.counters.evicted.fetch_add(u64::from(sealed), Ordering::Relaxed);
                let _ = self.map.remove_if(&tag, |_, bucket| bucket.state() == State::SEALED, guard);
                Look::Gone
            }
            Err(due) => Look::Stays { due },
        }
    }

    /// A decision with a receipt for what was taken. In shadow mode that is nothing, for what was denied.
    pub(crate) fn receive<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        ask: Ask<'_>,
        step: impl Step,
    ) -> Result<(Granted, Receipt), Denied> {
        let (decision, receipt) = self.take(self.place(guard, key), ask, step, Receive(step));
        let granted = self.extras.observe(step.most(), decision)?;
        Ok((granted, receipt.unwrap_or_else(|| Receipt::void(self.rules.clock.moment()))))
    }

    /// As [`receive`](Shared::receive), with a receipt that does not need the key.
    pub(crate) fn receive_by_entry<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: Ask<'_>,
        step: impl Step,
    ) -> Result<(Granted, Receipt), Denied> {
        let guard = self.map.guard();
        let (granted, mut receipt) = self.receive(&guard, key, ask, step)?;
        if receipt.spot == Spot::Own {
            let found = self.map.get_key_value(&self.place(&guard, key).key, &guard);
            receipt.spot = found.map_or(Spot::Nowhere, |(stored, _)| Spot::Entry(stored.tag));
        }
        Ok((granted, receipt))
    }

    /// The bucket that a receipt is for, if it is still there.
    fn bucket_of<'a>(&'a self, guard: &'a LocalGuard<'_>, spot: Spot) -> Option<&'a Bucket> {
        match spot {
            Spot::Entry(tag) => self.map.get(&tag, guard),
            Spot::Overflow(hash) => self.overflow.get(share_of(hash)),
            Spot::Own | Spot::Nowhere => None,
        }
    }

    /// Undoes what a receipt of this key is for.
    pub(crate) fn undo<Q: ToKey<K> + ?Sized>(&self, guard: &LocalGuard<'_>, key: &Q, receipt: &Receipt) {
        let place = self.place(guard, key);
        let bucket = match receipt.spot {
            Spot::Own => place.find(),
            spot => self.bucket_of(guard, spot),
        };
        if let Some(bucket) = bucket {
            self.rules.undo(bucket, receipt);
        }
    }

    #[inline]
    pub(crate) fn try_acquire_n<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        n: u64,
        ask: Ask<'_>,
    ) -> Result<Granted, Denied> {
        let (place, step) = (self.place(guard, key), Take(n));
        if let (Ask { plan: None, now: None }, true) = (ask, self.plain) {
            return self.run(place, Now(&self.rules), step).and_then(|done| step.decision(done));
        }
        self.extras.observe(n, self.take(place, ask, step, Decide(step)))
    }

    pub(crate) fn acquire_up_to<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        n: u64,
        ask: Ask<'_>,
    ) -> Granted {
        let step = TakeUpTo(n);
        let (granted, decision) = self.take(self.place(guard, key), ask, step, UpTo(step));
        self.extras.observe_up_to(n, granted, decision)
    }

    pub(crate) fn refund<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        n: u64,
        plan: Option<&Plan>,
    ) {
        let place = self.place(guard, key);
        if let (Some(bucket), Ok(plan)) = (place.find(), self.plan_of(place, plan)) {
            self.rules.refund(bucket, n, plan);
        }
    }

    pub(crate) fn peek<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        ask: Ask<'_>,
    ) -> Snapshot {
        let looked = self.look_at(guard, key, ask, Take(0));
        looked.unwrap_or_else(|denied| Granted::anyway(0, denied.remaining())).into()
    }

    /// What a take would come to.
    pub(crate) fn look_at<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        ask: Ask<'_>,
        step: Take,
    ) -> Result<Granted, Denied> {
        let place = self.place(guard, key);
        let rules = &self.rules;
        match (self.plan_of(place, ask.plan)?, ask.now) {
            (None, None) => step.decision(rules.peek(place, Now(rules), step)),
            (None, Some(now)) => step.decision(rules.peek(place, At(rules, now), step)),
            (Some(plan), None) => step.decision(rules.peek(place, Under(Now(rules), plan), step)),
            (Some(plan), Some(now)) => step.decision(rules.peek(place, Under(At(rules, now), plan), step)),
        }
    }

    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, guard: &LocalGuard<'_>, key: &Q) -> bool {
        let place = self.place(guard, key);
        let Some(bucket) = place.find() else { return false };
        let live = self.rules.seal(bucket);
        place.bury();
        live
    }

    /// Forgets every key.
    pub(crate) fn clear(&self) {
        let seal = |_: &Stored<K>, bucket: &Bucket| {
            self.rules.seal(bucket);
            false
        };
        self.map.retain(seal, &self.map.guard());
    }

    pub(crate) fn evict_idle(&self) -> usize {
        let mut evicted = 0;
        let stays = |_: &Stored<K>, bucket: &Bucket| {
            // Never charged: somebody's first use is under way.
            if bucket.state() == State::FULL {
                return true;
            }
            let sealed = self.rules.seal_if_idle(bucket);
            evicted += usize::from(sealed == Ok(true));
            sealed.is_err()
        };
        self.map.retain(stays, &self.map.guard());
        self.counters.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        evicted
    }
}

impl<K: Hash + Eq> Plans<K> {
    /// The plan of a key: of the one that is stored, or of an owned one made for the question.
    #[cold]
    fn of<S, Q: ToKey<K> + ?Sized>(&self, place: Slot<'_, K, S, Q>) -> Option<Plan> {
        let choice = match place.shared.map.get_key_value(&place.key, place.guard) {
            Some((stored, _)) => (self.choose)(&stored.key),
            None => (self.choose)(&place.key.key.to_key()),
        };
        choice.and_then(|plan| self.plans.get(plan).copied())
    }
}

/// What a call says beside its key and its tokens.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) plan: Option<&'a Plan>,
    pub(crate) now: Option<Moment>,
}

impl Ask<'_> {
    pub(crate) const NOW: Ask<'static> = Ask { plan: None, now: None };
}

/// Makes the public decision of an outcome.
struct Decide<T>(T);

impl<T: Step> Answer for Decide<T> {
    type Answer = Result<Granted, Denied>;

    #[inline]
    fn of<P: Pace>(self, done: Done<P>, _: Option<Plan>) -> Result<Granted, Denied> {
        done.and_then(|done| self.0.decision(done))
    }
}

/// Tells how many were taken, and makes the decision on the first.
struct UpTo(TakeUpTo);

impl Answer for UpTo {
    type Answer = (Granted, Result<Granted, Denied>);

    fn of<P: Pace>(self, done: Done<P>, _: Option<Plan>) -> Self::Answer {
        match done {
            Ok((outcome, reading)) => (Granted::new(outcome, &reading), self.0.decision((outcome, reading))),
            Err(denied) => (Granted::anyway(0, denied.remaining()), Err(denied)),
        }
    }
}

/// Makes a decision, and a receipt for what was taken.
struct Receive<T>(T);

impl<T: Step> Answer for Receive<T> {
    type Answer = (Result<Granted, Denied>, Option<Receipt>);

    fn of<P: Pace>(self, done: Done<P>, plan: Option<Plan>) -> Self::Answer {
        let receipt = |(outcome, reading): &(Outcome, Reading<P>)| {
            outcome.granted.then(|| Receipt::new(*outcome, reading, plan))
        };
        let receipt = done.as_ref().ok().and_then(receipt);
        (done.and_then(|done| self.0.decision(done)), receipt)
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> Shared<K, S> {
    pub(crate) fn reserve<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: Ask<'_>,
        n: u64,
        patience: u64,
    ) -> Reserved<'_> {
        // In shadow mode nobody waits.
        let (granted, receipt) = match self.extras.is_shadow() {
            true => self.receive_by_entry(key, ask, Take(n))?,
            false => self.receive_by_entry(key, ask, Reserve { n, patience })?,
        };
        Ok(Reservation::new(self, receipt, granted))
    }

    pub(crate) fn hold<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: Ask<'_>,
        estimate: u64,
    ) -> Result<Hold<'_>, Denied> {
        let (granted, receipt) = self.receive_by_entry(key, ask, Take(estimate))?;
        Ok(Hold::new(self, receipt, granted))
    }
}

impl<K: Hash + Eq, S: BuildHasher> Ledger for Shared<K, S> {
    fn give_back(&self, receipt: &Receipt) {
        let guard = self.map.guard();
        if let Some(bucket) = self.bucket_of(&guard, receipt.spot) {
            self.rules.give_back(bucket, receipt);
        }
    }

    fn refund(&self, receipt: &Receipt, n: u64) {
        let guard = self.map.guard();
        if let Some(bucket) = self.bucket_of(&guard, receipt.spot) {
            self.rules.refund(bucket, n, receipt.plan);
        }
    }

    fn charge(&self, receipt: &Receipt, n: u64) -> u64 {
        let guard = self.map.guard();
        match self.bucket_of(&guard, receipt.spot) {
            Some(bucket) => self.rules.charge_later(bucket, n, receipt.plan),
            None => 0,
        }
    }
}
