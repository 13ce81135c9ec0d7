//! The verbs of a limiter on a key: under a plan, at a reading, with a receipt.

use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::{BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{At, Done, Now};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Hold, Reservation, Reserved};
use crate::keyed::entry::KeyEntry;
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::keyspace::{Keyspace, Stats};
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::store::{Known, Store, StoreGuard};
use crate::limiter::observer::DecisionHook;
use crate::time::clock::Moment;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::plan::Plan;
use crate::word::state::{Origin, Outcome};
use crate::word::terms::Reading;
use crate::word::verb::{Call, Take};

pub(crate) struct Inner<K, S> {
    pub(crate) keyspace: Keyspace<K>,
    pub(crate) hasher: S,
    pub(crate) hook: DecisionHook,
    pub(crate) jitter: Jitter,
    /// Plans chosen by a function of the key, if the limiter has such a function.
    plans: Option<Box<Plans<K>>>,
    /// Whether there is no function of plans, no hook and no hot slot: one test on the fast path.
    fast_path: bool,
}

pub(crate) struct Plans<K> {
    pub(crate) plans: Vec<Plan>,
    pub(crate) choose: Choose<K>,
}

/// A function from a key to the index of its plan.
pub(crate) type Choose<K> = Box<dyn Fn(&K) -> Option<usize> + Send + Sync>;

/// The options of a call, beside its key and its tokens.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallOptions<'a> {
    pub(crate) plan: Option<&'a Plan>,
    pub(crate) now: Option<Moment>,
}

impl CallOptions<'_> {
    pub(crate) const NOW: CallOptions<'static> = CallOptions { plan: None, now: None };
}

/// The results of a take. Each verb returns some of them.
struct Taken {
    decision: Result<Granted, Denied>,
    /// The tokens taken: none, if the decision is a refusal.
    granted: Granted,
    /// A receipt for the tokens taken, if they can be given back.
    receipt: Option<Receipt>,
}

impl Taken {
    fn new(call: Call, done: Result<Done, Denied>) -> Taken {
        let Done { outcome, reading, leased } = match done {
            Ok(done) => done,
            Err(denied) => {
                let granted = Granted::anyway(0, denied.remaining());
                return Taken { decision: Err(denied), granted, receipt: None };
            }
        };
        let receipt = || Receipt::new(outcome, &reading, call.plan).beside(reading.refill.units(leased));
        Taken {
            receipt: outcome.granted.then(receipt),
            granted: call.granted(outcome, &reading),
            decision: call.decision(outcome, reading),
        }
    }
}

impl<K: Hash + Eq> Plans<K> {
    /// Returns the plan chosen for the key.
    ///
    /// The function is asked about the stored key if there is one, else about a temporary owned
    /// copy.
    #[cold]
    fn of<Q: ToKey<K> + ?Sized>(&self, entry: KeyEntry<'_, K, Q>) -> Option<Plan> {
        let stored = match entry.pin {
            StoreGuard::Map(buckets, guard) => buckets.map.get_key_value(&entry.key, guard),
            StoreGuard::Table(_) => None,
        };
        let choice = match stored {
            Some((stored, _)) => (self.choose)(&stored.key),
            None => (self.choose)(&entry.key.key.to_key()),
        };
        choice.and_then(|plan| self.plans.get(plan).copied())
    }
}

/// Attempts once to take `n` tokens from a known key's bucket.
#[inline(always)]
fn attempt(found: Option<impl BucketRef>, read: impl ReadClock, n: u64) -> Result<(Outcome, Reading), Miss> {
    // Not a closure, which has no `inline` attribute: out of line, a decision took a quarter
    // longer.
    match found {
        Some(bucket) => bucket.attempt(Order::WordFirst, read, n),
        None => Err(Miss::StaleReading),
    }
}

impl<K, S> Inner<K, S> {
    pub(crate) fn new(
        keyspace: Keyspace<K>,
        hasher: S,
        hook: DecisionHook,
        jitter: Jitter,
        plans: Option<Plans<K>>,
    ) -> Inner<K, S> {
        let fast_path = plans.is_none() && hook.is_none() && keyspace.hot.is_none();
        Inner { keyspace, hasher, hook, jitter, plans: plans.map(Box::new), fast_path }
    }
}

impl<K: Eq, S> Inner<K, S> {
    pub(crate) fn stats(&self) -> Stats {
        Stats { overruled: self.hook.overruled(), ..self.keyspace.stats() }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    #[inline]
    fn entry<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        pin: &'a StoreGuard<'a, K>,
        key: &'a Q,
    ) -> KeyEntry<'a, K, Q> {
        self.keyspace.entry(pin, KeyQuery::new(&self.hasher, key))
    }

    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: &Q) -> bool {
        self.keyspace.remove(pin, KeyQuery::new(&self.hasher, key))
    }

    /// Like [`try_acquire_n`](Inner::try_acquire_n), but takes the guard itself.
    ///
    /// Only the guard is live on the hot path.
    #[inline]
    pub(crate) fn try_acquire_once<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        if !self.fast_path {
            return self.try_acquire_watched(key, n);
        }
        let (key, now) = (KeyQuery::new(&self.hasher, key), Now(&self.keyspace.engine));
        let (pin, attempt) = match &self.keyspace.store {
            Store::Map(buckets) => {
                let guard = buckets.map.guard();
                let attempt = attempt(buckets.map.get(&key, &guard), now, n);
                if let Ok(done) = attempt {
                    return Take::Exactly(n).decision(done);
                }
                (StoreGuard::Map(buckets, guard), attempt)
            }
            Store::Table(table) => (StoreGuard::Table(table), attempt(table.find(key.full), now, n)),
        };
        match attempt {
            Ok(done) => Take::Exactly(n).decision(done),
            Err(missed) => self.try_acquire_anyhow(&pin, key, missed, n),
        }
    }

    /// Takes `n` tokens where the fast path does not apply.
    #[cold]
    #[inline(never)]
    fn try_acquire_watched<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.try_acquire_anyhow(
            &self.keyspace.store.pin(),
            KeyQuery::new(&self.hasher, key),
            Miss::StaleReading,
            n,
        )
    }

    #[inline]
    pub(crate) fn try_acquire_n<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let key = KeyQuery::new(&self.hasher, key);
        match self.attempt_at(pin, key, Now(&self.keyspace.engine), n) {
            Ok(done) => Take::Exactly(n).decision(done),
            Err(missed) => self.try_acquire_anyhow(pin, key, missed, n),
        }
    }

    #[inline(always)]
    fn attempt_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        read: impl ReadClock,
        n: u64,
    ) -> Result<(Outcome, Reading), Miss> {
        if !self.fast_path {
            return Err(Miss::StaleReading);
        }
        match pin {
            StoreGuard::Map(buckets, guard) => attempt(buckets.map.get(&key, guard), read, n),
            StoreGuard::Table(table) => attempt(table.find(key.full), read, n),
        }
    }

    /// Takes `n` tokens after an attempt that `missed`.
    #[cold]
    #[inline(never)]
    fn try_acquire_anyhow<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        missed: Miss,
        n: u64,
    ) -> Result<Granted, Denied> {
        if let Some(hot) = &self.keyspace.hot {
            return self.keyspace.try_acquire_hot(hot, pin, key, Now(&self.keyspace.engine), n);
        }
        let entry = self.keyspace.entry(pin, key);
        if missed == Miss::LostRace
            && let Some(bucket) = entry.get()
            && let Some(done) =
                self.keyspace.engine.attempt_again(bucket, missed, Now(&self.keyspace.engine), n)
        {
            return Take::Exactly(n).decision(done);
        }
        self.decide(entry, n, CallOptions::NOW)
    }

    /// Like [`try_acquire_n`](Inner::try_acquire_n), with the options of the call.
    pub(crate) fn try_acquire_as<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        n: u64,
        ask: CallOptions<'_>,
    ) -> Result<Granted, Denied> {
        let key = KeyQuery::new(&self.hasher, key);
        match ask {
            CallOptions { plan: None, now: Some(now) } => self.try_acquire_at(pin, key, now, n),
            ask => self.decide(self.keyspace.entry(pin, key), n, ask),
        }
    }

    /// Like [`try_acquire_n`](Inner::try_acquire_n), at a reading taken before.
    #[inline]
    pub(crate) fn try_acquire_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        now: Moment,
        n: u64,
    ) -> Result<Granted, Denied> {
        match self.attempt_at(pin, key, At(&self.keyspace.engine, now), n) {
            Ok(done) => Take::Exactly(n).decision(done),
            Err(_) => self.decide(
                self.keyspace.entry(pin, key),
                n,
                CallOptions { now: Some(now), ..CallOptions::NOW },
            ),
        }
    }

    #[cold]
    fn decide<Q: ToKey<K> + ?Sized>(
        &self,
        entry: KeyEntry<'_, K, Q>,
        n: u64,
        ask: CallOptions<'_>,
    ) -> Result<Granted, Denied> {
        let step = Take::Exactly(n);
        if let CallOptions { plan: None, now: Some(now) } = ask
            && let Some(hot) = &self.keyspace.hot
        {
            return self.keyspace.try_acquire_hot(
                hot,
                entry.pin,
                entry.key,
                At(&self.keyspace.engine, now),
                n,
            );
        }
        self.hook.observe(n, self.take(entry, ask, step).decision)
    }

    pub(crate) fn acquire_up_to<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        n: u64,
        ask: CallOptions<'_>,
    ) -> Granted {
        let step = Take::UpTo(n);
        let taken = self.take(self.entry(pin, key), ask, step);
        self.hook.observe_up_to(n, taken.granted, taken.decision)
    }

    pub(crate) fn refund<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        n: u64,
        plan: Option<&Plan>,
    ) {
        let entry = self.entry(pin, key);
        if let (Some(found), Ok(plan)) = (entry.get(), self.plan_of(entry, plan)) {
            self.keyspace.settle_found(Known::of(found), plan, Settle::Refund(n));
        }
    }

    pub(crate) fn peek<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        ask: CallOptions<'_>,
    ) -> Snapshot {
        let looked = self.look_at(pin, key, ask, Take::Exactly(0));
        looked.unwrap_or_else(|denied| Granted::anyway(0, denied.remaining())).into()
    }

    /// Returns whether the key has an entry.
    pub(crate) fn holds<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: &Q) -> bool {
        self.entry(pin, key).get().is_some()
    }

    /// Returns the decision on a take, without the take.
    pub(crate) fn look_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        ask: CallOptions<'_>,
        step: Take,
    ) -> Result<Granted, Denied> {
        let (entry, engine) = (self.entry(pin, key), &self.keyspace.engine);
        let call = Call { take: step, plan: self.plan_of(entry, ask.plan)? };
        let entry = entry.under(call.plan.as_ref());
        let Done { outcome, reading, .. } = match ask.now {
            None => protocol::peek(engine, entry, Now(engine), call),
            Some(now) => protocol::peek(engine, entry, At(engine, now), call),
        };
        call.decision(outcome, reading)
    }

    /// Returns the plan of the call, else the plan of the key.
    fn plan_of<Q: ToKey<K> + ?Sized>(
        &self,
        entry: KeyEntry<'_, K, Q>,
        plan: Option<&Plan>,
    ) -> Result<Option<Plan>, Denied> {
        match (plan, &self.plans) {
            (None, None) => Ok(None),
            (Some(plan), _) if plan.limiter != self.keyspace.id => Err(Denied::foreign_plan()),
            (Some(plan), _) => Ok(Some(*plan)),
            (None, Some(plans)) => Ok(plans.of(entry)),
        }
    }

    /// Takes tokens of the key's bucket, under its plan and at the given reading, if any.
    fn take<Q: ToKey<K> + ?Sized>(
        &self,
        entry: KeyEntry<'_, K, Q>,
        ask: CallOptions<'_>,
        step: Take,
    ) -> Taken {
        let engine = &self.keyspace.engine;
        let plan = match self.plan_of(entry, ask.plan) {
            Ok(plan) => plan,
            Err(denied) => return Taken::new(step.into(), Err(denied)),
        };
        let (entry, call) = (entry.under(plan.as_ref()), Call { take: step, plan });
        let done = match ask.now {
            None => protocol::acquire(engine, entry, Now(engine), call),
            Some(now) => protocol::acquire(engine, entry, At(engine, now), call),
        };
        Taken::new(call, done)
    }

    /// Takes tokens, and returns a receipt for them.
    ///
    /// The receipt of a refusal that shadow mode overruled is void.
    pub(crate) fn receive<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        ask: CallOptions<'_>,
        step: Take,
    ) -> Result<(Granted, Receipt), Denied> {
        let entry = self.entry(pin, key);
        let removals = self.keyspace.shard(pin, entry.key).latest();
        let taken = self.take(entry, ask, step);
        let granted = self.hook.observe(step.tokens(), taken.decision)?;
        let receipt = taken.receipt.unwrap_or_else(|| Receipt::void(self.keyspace.engine.clock.moment()));
        Ok((granted, receipt.counted_from(removals)))
    }

    /// Like [`receive`](Inner::receive), with a receipt that is valid without the key.
    pub(crate) fn receive_by_entry<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: CallOptions<'_>,
        step: Take,
    ) -> Result<(Granted, Receipt), Denied> {
        let pin = self.keyspace.store.pin();
        let (granted, mut receipt) = self.receive(&pin, key, ask, step)?;
        if receipt.origin == Origin::Own {
            let entry = self.entry(&pin, key);
            receipt.origin = match &pin {
                StoreGuard::Map(buckets, guard) => {
                    let found = buckets.map.get_key_value(&entry.key, guard);
                    found.map_or(Origin::Nowhere, |(stored, _)| Origin::Entry(stored.tag.packed()))
                }
                StoreGuard::Table(_) => Origin::Inline(entry.key.full),
            };
        }
        Ok((granted, receipt))
    }

    /// Undoes the take of a receipt of this key.
    pub(crate) fn undo<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: &Q, receipt: &Receipt) {
        let entry = self.entry(pin, key);
        let shard = self.keyspace.shard(pin, entry.key);
        let known = match receipt.origin {
            Origin::Own => entry.get().map(|found| Known::since(found, shard, receipt)),
            _ => self.keyspace.bucket_of(pin, receipt),
        };
        if let Some(known) = known {
            self.keyspace.settle_found(known, receipt.plan, Settle::Undo(receipt));
        }
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> Inner<K, S> {
    pub(crate) fn reserve<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: CallOptions<'_>,
        n: u64,
        max_wait: u64,
    ) -> Reserved<'_> {
        // In shadow mode no caller waits, either.
        let (granted, receipt) = match max_wait == 0 || self.hook.is_shadow() {
            true => self.receive_by_entry(key, ask, Take::Exactly(n))?,
            false => self.receive_by_entry(key, ask, Take::Reserve { n, max_wait })?,
        };
        Ok(Reservation::new(&self.keyspace, receipt, granted))
    }

    pub(crate) fn hold<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: CallOptions<'_>,
        estimate: u64,
    ) -> Result<Hold<'_>, Denied> {
        let (granted, receipt) = match estimate {
            // The later settlement needs a bucket with a level.
            0 => self.receive_by_entry(key, ask, Take::Touch)?,
            n => self.receive_by_entry(key, ask, Take::Exactly(n))?,
        };
        Ok(Hold::new(&self.keyspace, receipt, granted))
    }
}
