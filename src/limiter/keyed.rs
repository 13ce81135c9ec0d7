//! The buckets of a [`RateLimiter`](crate::RateLimiter) as targets of a request: that of a key,
//! with a guard of its own or with one that serves many calls, and that of requests without a key.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::bucket::atomic::{BucketRef, Miss, Order};
use crate::bucket::engine::{Dated, Done, When};
use crate::bucket::line::caller_line::{CallerLine, Wakes};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::fault::{Fault, injected};
use crate::keyed::entry::KeyEntry;
use crate::keyed::in_line::{LineBank, Touch};
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::lines::LineId;
use crate::keyed::protocol::{self, Entry};
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::limiter::asked::{Asked, CallOptions, Frame, Lent, Site, Target};
use crate::limiter::inner::{Inner, Plans};
use crate::limiter::rule::Rule;
use crate::limiter::verbs::Verb;
use crate::rule::gate::Gate;
use crate::time::clock::Moment;
use crate::word::by_refill::{BUCKETS, PLACES, WINDOWS, attempt_by};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::PlanTerms;
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Take};

/// The bucket of a key, from [`RateLimiter::key`](crate::RateLimiter::key).
pub struct Keyed<'a, 'k, K, Q: ?Sized, R, S> {
    pub(super) inner: &'a Inner<K, S>,
    /// The handle of `inner`, for guards that own one.
    pub(super) owner: &'a Arc<Inner<K, S>>,
    pub(super) key: &'k Q,
    pub(super) rule: PhantomData<R>,
}

/// The bucket of a key under a guard that the caller holds, from
/// [`Pinned::key`](crate::Pinned::key).
pub struct PinnedKey<'a, 'k, K, Q: ?Sized, R, S> {
    pub(super) pin: &'a StoreGuard<'a, K>,
    pub(super) bucket: Keyed<'a, 'k, K, Q, R, S>,
}

/// The one bucket of the requests without a key, from
/// [`RateLimiter::shared`](crate::RateLimiter::shared).
///
/// It is under the limiter's own rule, and no key shares it. A request under a plan is refused,
/// with [`Reason::ForeignPlan`].
pub struct Shared<'a, K, R, S> {
    pub(super) inner: &'a Arc<Inner<K, S>>,
    pub(super) rule: PhantomData<R>,
}

/// The bucket of a key in one call: its guard, its hash, and the attempt that came to nothing.
pub(crate) struct KeySite<'a, 'k, G, K, Q: ?Sized, S> {
    pub(super) inner: &'a Inner<K, S>,
    pub(super) pin: G,
    pub(super) key: KeyQuery<'k, Q>,
    pub(super) missed: Miss,
}

impl<'a, G, K, Q, S> KeySite<'a, '_, G, K, Q, S>
where
    G: Borrow<StoreGuard<'a, K>>,
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
{
    fn entry(&self) -> KeyEntry<'_, K, Q> {
        self.inner.keyspace.entry(self.pin.borrow(), self.key)
    }

    /// Returns whether the key has an entry.
    pub(super) fn is_held(&self) -> bool {
        self.entry().get().is_some()
    }

    /// Returns the plan that the function of plans chooses for the key.
    #[cold]
    fn chosen<'p>(&self, plans: &'p Plans<K>) -> Option<&'p PlanTerms> {
        plans.of(self.key.key, self.entry().find_stored().0)
    }

    fn is_unlimited(&self, plan: Option<&PlanTerms>) -> bool {
        let own = self.inner.keyspace.engine.source.gate();
        let quota = plan.map_or(own, |plan| plan.quota().gate());
        own != Gate::Shut && quota == Gate::Open
    }
}

impl<'a, G, K, Q, S> Site for KeySite<'a, '_, G, K, Q, S>
where
    G: Borrow<StoreGuard<'a, K>>,
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
{
    fn removals(&self) -> u64 {
        self.inner.keyspace.removals_of(self.key)
    }

    fn entered(&self, origin: Origin) -> u64 {
        self.inner.keyspace.entered(origin, || self.entry().is_present())
    }

    /// Returns the plan that the call names, else the one that the function of plans chooses for
    /// the key.
    fn plan<'p>(&'p self, named: Option<&'p PlanTerms>) -> Result<Option<&'p PlanTerms>, Denied> {
        match (self.inner.named_plan(named)?, &self.inner.plans) {
            (None, Some(plans)) => Ok(self.chosen(plans)),
            (plan, _) => Ok(plan),
        }
    }

    fn charge(&self, call: Call<'_>, now: Option<Moment>) -> Result<Done, Denied> {
        let engine = &self.inner.keyspace.engine;
        let (entry, is_absent) = (self.entry().under(call.plan), self.missed == Miss::Absent);
        let mut done = protocol::acquire(engine, entry, is_absent, When(engine, now), &call);
        if let Some(plan) = call.plan.filter(|_| injected(Fault::PlanAdmittedLate)) {
            engine.admit_plan(plan.ticks_to_fill());
        }
        match &mut done {
            Ok(done) if done.outcome.origin == Origin::Own => {
                done.outcome.origin = entry.origin().unwrap_or(Origin::Nowhere);
            }
            // No bucket counts it.
            Err(denied) if denied.reason() == Reason::Full && self.is_unlimited(call.plan) => {
                return Ok(Done::nowhere(engine.read()));
            }
            _ => {}
        }
        done
    }

    #[inline(always)]
    fn attempt(&self, take: Take) -> Option<(Granted, Receipt)> {
        let engine = &self.inner.keyspace.engine;
        attempt_by!(
            BUCKETS | WINDOWS | PLACES,
            self.inner.fast_path,
            engine.source.counts(),
            |by| {
                let (removals, begun) = (self.removals(), Cell::new(0));
                let found = self.entry().find_stored().1?;
                let done = found.attempt_by(Order::WordFirst, Dated(engine, &begun), take, by).ok()?;
                let (granted, receipt) = Receipt::of_grant(take, done, begun.get())?;
                Some((granted, Receipt { origin: found.origin(), removals, ..receipt }))
            },
            None
        )
    }

    fn look(&self, call: Call<'_>, now: Option<Moment>) -> (bool, Done) {
        self.entry().under(call.plan).look(When(&self.inner.keyspace.engine, now), call)
    }

    fn refund(&self, plan: Option<&PlanTerms>, n: u64) {
        if let Some(found) = self.entry().find_stored().1 {
            self.inner.keyspace.settle_found(self.pin.borrow(), found, plan, Settle::Refund(n));
        }
    }
}

impl<K, Q, R, S> Keyed<'_, '_, K, Q, R, S>
where
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher,
{
    /// Returns whether the key has an entry, or a thread is inserting one.
    fn is_present(&self, pin: &StoreGuard<'_, K>) -> bool {
        self.inner.keyspace.entry(pin, KeyQuery::new(&self.inner.hasher, self.key)).is_present()
    }
}

impl<'a, 'k, K, Q, R, S> Target for Keyed<'a, 'k, K, Q, R, S>
where
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher,
{
    type Site = KeySite<'a, 'k, StoreGuard<'a, K>, K, Q, S>;

    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        self.inner.decide::<R, V, Q>(self.key, verb, options)
    }

    #[inline(always)]
    fn site(self) -> Self::Site {
        let (inner, key) = (self.inner, KeyQuery::new(&self.inner.hasher, self.key));
        KeySite { inner, pin: inner.keyspace.store.pin(), key, missed: Miss::Untried }
    }

    fn frame(&self) -> Frame<'_> {
        self.inner.frame()
    }

    fn settles(&self) -> &dyn Ledger {
        &self.inner.keyspace
    }

    fn with_line<T>(
        self,
        id: &LineId,
        touch: Touch,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T {
        self.inner.keyspace.with_line(id, touch, |pin| self.is_present(pin), run)
    }
}

impl<'a, 'k, K, Q, R, S> Target for PinnedKey<'a, 'k, K, Q, R, S>
where
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher,
{
    type Site = KeySite<'a, 'k, &'a StoreGuard<'a, K>, K, Q, S>;

    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        let Keyed { inner, key, .. } = self.bucket;
        inner.decide_pinned::<R, V, Q>(self.pin, KeyQuery::new(&inner.hasher, key), verb, options)
    }

    fn site(self) -> Self::Site {
        let Keyed { inner, key, .. } = self.bucket;
        KeySite { inner, pin: self.pin, key: KeyQuery::new(&inner.hasher, key), missed: Miss::Untried }
    }

    fn frame(&self) -> Frame<'_> {
        self.bucket.frame()
    }

    fn settles(&self) -> &dyn Ledger {
        self.bucket.settles()
    }

    fn with_line<T>(
        self,
        id: &LineId,
        touch: Touch,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T {
        self.bucket.with_line(id, touch, run)
    }
}

impl<K: Hash + Eq, R, S> Target for Shared<'_, K, R, S> {
    type Site = Self;

    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        verb.decided(&self.inner.hook, self.run(verb.take(), options))
    }

    fn site(self) -> Self {
        self
    }

    fn frame(&self) -> Frame<'_> {
        self.inner.frame()
    }

    fn settles(&self) -> &dyn Ledger {
        &self.inner.keyspace
    }

    fn with_line<T>(
        self,
        id: &LineId,
        touch: Touch,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T {
        self.inner.keyspace.with_line(id, touch, |_| false, run)
    }
}

impl<'a, K: Hash + Eq, R, S> Shared<'a, K, R, S> {
    fn bucket(&self) -> (&'a Keyspace<K>, FoundBucket<'a>) {
        let keyspace = &self.inner.keyspace;
        keyspace.sweep_if_due();
        (keyspace, keyspace.no_key_bucket())
    }
}

impl<K: Hash + Eq, R, S> Site for Shared<'_, K, R, S> {
    fn charge(&self, call: Call<'_>, now: Option<Moment>) -> Result<Done, Denied> {
        let (Keyspace { engine, .. }, bucket) = self.bucket();
        let done = engine.charge(bucket, Some(State::FULL), When(engine, now), call);
        Ok(done.expect("the shared bucket is never sealed"))
    }

    fn look(&self, call: Call<'_>, now: Option<Moment>) -> (bool, Done) {
        let (Keyspace { engine, .. }, bucket) = self.bucket();
        engine.look(bucket, When(engine, now), call)
    }

    fn refund(&self, _: Option<&PlanTerms>, n: u64) {
        let (keyspace, bucket) = self.bucket();
        keyspace.settle_found(&keyspace.store.pin(), bucket, None, Settle::Refund(n));
    }
}

impl<'a, K, Q, R, S> Lent<'a> for Keyed<'a, '_, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ?Sized,
{
    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        &self.inner.keyspace
    }
}

impl<'a, K, Q, R, S> Lent<'a> for PinnedKey<'a, '_, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ?Sized,
{
    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        self.bucket.ledger()
    }
}

impl<'a, K: Hash + Eq + Send + Sync, R, S> Lent<'a> for Shared<'a, K, R, S> {
    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        &self.inner.keyspace
    }
}

impl<'a, K, Q, R, S> Asked<'a> for Keyed<'a, '_, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher + Send + Sync,
{
    type Rule = R;
}

impl<'a, K, Q, R, S> Asked<'a> for PinnedKey<'a, '_, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher + Send + Sync,
{
    type Rule = R;
}

impl<'a, K, R, S> Asked<'a> for Shared<'a, K, R, S>
where
    K: Hash + Eq + Send + Sync,
    R: Rule,
    S: Send + Sync,
{
    type Rule = R;
}

macro_rules! copied {
    ($($name:ident<$($lifetime:lifetime,)* K $(, $q:ident)?>)*) => { $(
        impl<K $(, $q: ?Sized)?, R, S> Clone for $name<$($lifetime,)* K $(, $q)?, R, S> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<K $(, $q: ?Sized)?, R, S> Copy for $name<$($lifetime,)* K $(, $q)?, R, S> {}

        /// Never prints the key.
        impl<K $(, $q: ?Sized)?, R, S> fmt::Debug for $name<$($lifetime,)* K $(, $q)?, R, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )* };
}
copied!(Keyed<'_, '_, K, Q> PinnedKey<'_, '_, K, Q> Shared<'_, K>);
