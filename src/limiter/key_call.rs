//! A call on one key: its entry, its options and its plan, and the verbs off the hot path.

use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::Miss;
use crate::bucket::engine::{At, Done, Now};
use crate::bucket::receipt::{Receipt, Settle};
use crate::fault::{Fault, injected};
use crate::keyed::entry::KeyEntry;
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::store::StoreGuard;
use crate::limiter::inner::Inner;
use crate::limiter::options::CallOptions;
use crate::limiter::verbs::decision;
use crate::rule::gate::Gate;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;
use crate::word::verb::{Call, Take};

/// A call on one key, with its entry looked up by hash.
pub(crate) struct KeyCall<'a, K, Q: ?Sized, S> {
    pub(crate) inner: &'a Inner<K, S>,
    pub(crate) entry: KeyEntry<'a, K, Q>,
    pub(crate) options: CallOptions<'a>,
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyCall<'_, K, Q, S> {
    pub(crate) fn refund(self, n: u64) {
        if let (Some(found), Ok(plan)) = (self.entry.get(), self.plan()) {
            let found = (found, || self.entry.origin());
            self.inner.keyspace.settle_found(self.entry.pin, found, plan, Settle::Refund(n));
        }
    }

    /// Returns the content of the bucket, as the take sees it.
    pub(crate) fn peek(self, take: Take) -> Snapshot {
        match self.seen(take, Take::Exactly(0)) {
            Ok((call, Done { outcome, reading, .. })) => call.snapshot(outcome, reading),
            Err(_) => Snapshot::new(Granted::anyway(0, 0), None),
        }
    }

    /// Returns whether the key has an entry.
    pub(crate) fn is_held(&self) -> bool {
        self.entry.get().is_some()
    }

    /// Returns the decision on a take, without the take.
    pub(crate) fn look(&self, take: Take) -> Result<Granted, Denied> {
        let (call, Done { outcome, reading, .. }) = self.seen(take, take)?;
        call.decision(outcome, reading)
    }

    /// Returns the call of a take, and the outcome that the `tried` one would have.
    fn seen(&self, take: Take, tried: Take) -> Result<(Call, Done), Denied> {
        let (plan, engine) = (self.plan()?, &self.inner.keyspace.engine);
        let (entry, tried) = (self.entry.under(plan.as_ref()), Call { take: tried, plan });
        let done = match self.options.now {
            None => entry.peek(Now(engine), tried),
            Some(now) => entry.peek(At(engine, now), tried),
        };
        Ok((Call { take, plan }, done))
    }

    /// Returns the plan that the options name, else the one that the function of plans chooses for
    /// the key. `None` is the limiter's own rule.
    fn plan(&self) -> Result<Option<PlanTerms>, Denied> {
        match (self.inner.named_plan(self.options)?, &self.inner.plans) {
            (None, Some(plans)) => Ok(plans.of(self.entry)),
            (plan, _) => Ok(plan),
        }
    }

    /// Runs a take under the plan of the call.
    pub(super) fn run(&self, take: Take) -> (Call, Result<Done, Denied>) {
        self.run_after(Miss::Untried, take)
    }

    /// Runs a take under the plan of the call, after an attempt that `missed`.
    pub(super) fn run_after(&self, missed: Miss, take: Take) -> (Call, Result<Done, Denied>) {
        let engine = &self.inner.keyspace.engine;
        let plan = match self.plan() {
            Ok(plan) => plan,
            Err(denied) => return (take.into(), Err(denied)),
        };
        let (entry, call) = (self.entry.under(plan.as_ref()), Call { take, plan });
        let is_absent = missed == Miss::Absent;
        let done = match self.options.now {
            None => protocol::acquire(engine, entry, is_absent, Now(engine), &call),
            Some(now) => protocol::acquire(engine, entry, is_absent, At(engine, now), &call),
        };
        if let Some(plan) = plan.filter(|_| injected(Fault::PlanAdmittedLate)) {
            engine.admit_plan(plan.ticks_to_fill());
        }
        let done = match done {
            // No bucket counts it.
            Err(denied) if denied.reason() == Reason::Full && self.is_unlimited(plan) => {
                Ok(Done::nowhere(engine.read()))
            }
            done => done,
        };
        (call, done)
    }

    fn is_unlimited(&self, plan: Option<PlanTerms>) -> bool {
        let own = self.inner.keyspace.engine.source.gate();
        let quota = plan.map_or(own, |plan| plan.quota().gate());
        own != Gate::Shut && quota == Gate::Open
    }

    /// Takes tokens of the key, shows the decision to the hook, and returns a receipt for the take.
    /// A panic of the hook undoes the take.
    ///
    /// Where shadow mode overruled a refusal the receipt is void: nothing can be given back.
    pub(crate) fn receive(&self, take: Take) -> Result<(Granted, Receipt), Denied> {
        let removals = self.removals();
        let (call, done) = self.run(take);
        self.received(call, done, removals)
    }

    /// Shows the decision on a take to the hook, and returns a receipt for the take.
    pub(super) fn received(
        &self,
        call: Call,
        done: Result<Done, Denied>,
        removals: u64,
    ) -> Result<(Granted, Receipt), Denied> {
        let hook = &self.inner.hook;
        let granted = done.ok().filter(|done| done.outcome.granted);
        let receipt = granted
            .map(|Done { outcome, reading, .. }| Receipt::of(call, outcome, &reading).counted_from(removals));
        let undo = || receipt.iter().for_each(|receipt| self.undo(receipt));
        let granted = hook.observe_or(call.take.n(), decision(call, done), undo)?;
        Ok((granted, receipt.unwrap_or_else(|| Receipt::void(self.inner.keyspace.engine.clock.now()))))
    }

    /// Returns the number of removals in the shard of the key.
    pub(super) fn removals(&self) -> u64 {
        self.inner.keyspace.shard(self.entry.pin, self.entry.key).latest()
    }

    /// Returns an origin that finds the bucket without the key.
    pub(super) fn entry_of(&self, origin: Origin) -> Origin {
        match origin {
            Origin::Own => self.entry.origin().unwrap_or(Origin::Nowhere),
            other => other,
        }
    }

    /// Like [`receive`](KeyCall::receive), with a receipt that is valid without the key.
    pub(crate) fn receive_by_entry(&self, take: Take) -> Result<(Granted, Receipt), Denied> {
        let (granted, receipt) = self.receive(take)?;
        Ok((granted, self.by_entry(receipt)))
    }

    /// Returns the receipt of a take that was just made, valid without the key.
    pub(super) fn by_entry(&self, mut receipt: Receipt) -> Receipt {
        receipt.origin = self.entry_of(receipt.origin);
        receipt
    }

    /// Undoes the take of a receipt of this key.
    pub(crate) fn undo(&self, receipt: &Receipt) {
        let (keyspace, entry) = (&self.inner.keyspace, self.entry);
        let shard = keyspace.shard(entry.pin, entry.key);
        let found = match receipt.origin {
            Origin::Own => entry.get().map(|found| shard.since(receipt.removals, found)),
            _ => keyspace.bucket_of(entry.pin, receipt),
        };
        if let Some(found) = found {
            let found = (found, || Some(self.entry_of(receipt.origin)));
            keyspace.settle_found(entry.pin, found, receipt.plan, Settle::Undo(receipt));
        }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    /// Returns a call on a key, for the verbs off the hot path.
    #[inline]
    pub(crate) fn call<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        pin: &'a StoreGuard<'a, K>,
        key: &'a Q,
        options: CallOptions<'a>,
    ) -> KeyCall<'a, K, Q, S> {
        KeyCall { inner: self, entry: self.keyspace.entry(pin, KeyQuery::new(&self.hasher, key)), options }
    }
}
