//! The shared part of a limiter, and the verbs on a key.

use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::{BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{At, Done, Now};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Hold, Reservation, Reserved};
use crate::keyed::entry::KeyEntry;
use crate::keyed::hot::HotKeys;
use crate::keyed::id::BucketId;
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::keyspace::{Keyspace, Stats};
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::store::{Known, MapStore, Store, StoreGuard};
use crate::keyed::table::{SlotRef, Table};
use crate::limiter::observer::DecisionHook;
use crate::time::clock::Moment;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted, Snapshot, exactly};
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

impl<K: Hash + Eq> Plans<K> {
    /// Returns the plan chosen for the key.
    ///
    /// The function is asked about the stored key if there is one, else about a temporary owned
    /// copy.
    #[cold]
    fn of<Q: ToKey<K> + ?Sized>(&self, entry: KeyEntry<'_, K, Q>) -> Option<Plan> {
        let stored = match entry.pin {
            StoreGuard::Map(buckets, guard) => buckets.map.get_key_value(&entry.key.in_map(), guard),
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

    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: &Q) -> bool {
        self.keyspace.remove(pin, KeyQuery::new(&self.hasher, key))
    }

    /// Like [`try_acquire_n`](Inner::try_acquire_n), but takes the guard itself.
    ///
    /// Inlined into the caller, which saves 26 of the table's 230 instructions.
    #[inline(always)]
    pub(crate) fn try_acquire_once<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        if !self.fast_path {
            return self.try_acquire_watched(key, n);
        }
        let table = match &self.keyspace.store {
            Store::Map(buckets) => return self.try_acquire_in_map(buckets, key, n),
            Store::Table(table) => table,
        };
        let key = KeyQuery::new(&self.hasher, key);
        match attempt(table.find(key.full), Now(&self.keyspace.engine), n) {
            Ok(done) => exactly(n, done),
            Err(missed) => self.try_acquire_anyhow(&StoreGuard::Table(table), key, missed, n),
        }
    }

    #[inline]
    fn try_acquire_in_map<Q: ToKey<K> + ?Sized>(
        &self,
        buckets: &MapStore<K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        self.try_acquire_by_guard(None, buckets, key, n)
    }

    /// Takes `n` tokens where there is a function of plans, a hook or a hot slot.
    #[inline(never)]
    fn try_acquire_watched<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        match (&self.keyspace.hot, &self.keyspace.store) {
            (Some(hot), Store::Map(buckets)) => self.try_acquire_by_guard(Some(hot), buckets, key, n),
            (Some(hot), Store::Table(table)) => self.try_acquire_in_table(hot, table, key, n),
            (None, store) => {
                let (pin, key) = (store.pin(), KeyQuery::new(&self.hasher, key));
                self.try_acquire_anyhow(&pin, key, Miss::StaleReading, n)
            }
        }
    }

    /// Takes `n` tokens in a map. Only the guard is live on the hot path.
    #[inline(always)]
    fn try_acquire_by_guard<Q: ToKey<K> + ?Sized>(
        &self,
        hot: Option<&HotKeys>,
        buckets: &MapStore<K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let (key, guard) = (KeyQuery::new(&self.hasher, key), buckets.map.guard());
        let found = buckets.map.get(&key.in_map(), &guard);
        match self.attempt_beside(hot, found, BucketId::of, n) {
            Ok(done) => {
                if let Some(hot) = hot
                    && hot.in_turn(done.1.at).is_some()
                {
                    self.keyspace.demote_in_turn(hot, &StoreGuard::Map(buckets, guard), done.1.at);
                }
                exactly(n, done)
            }
            Err(missed) => self.try_acquire_anyhow(&StoreGuard::Map(buckets, guard), key, missed, n),
        }
    }

    /// Attempts once to take `n` tokens from a known key's bucket, if it is not spread.
    #[inline(always)]
    fn attempt_beside<W: BucketRef>(
        &self,
        hot: Option<&HotKeys>,
        found: Option<W>,
        id: fn(W) -> BucketId,
        n: u64,
    ) -> Result<(Outcome, Reading), Miss> {
        let read = Now(&self.keyspace.engine);
        match (hot, found) {
            (Some(hot), Some(word)) => hot.whole(word, id(word)).attempt(Order::WordFirst, read, n),
            (None, found) => attempt(found, read, n),
            (_, None) => Err(Miss::StaleReading),
        }
    }

    /// Takes `n` tokens in a table, beside hot keys.
    #[inline(always)]
    fn try_acquire_in_table<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &HotKeys,
        table: &Table,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let key = KeyQuery::new(&self.hasher, key);
        match self.attempt_beside(Some(hot), table.find(key.full), SlotRef::id, n) {
            Ok(done) => {
                if hot.in_turn(done.1.at).is_some() {
                    self.keyspace.demote_in_turn(hot, &StoreGuard::Table(table), done.1.at);
                }
                exactly(n, done)
            }
            Err(missed) => self.try_acquire_anyhow(&StoreGuard::Table(table), key, missed, n),
        }
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
            Ok(done) => exactly(n, done),
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
            StoreGuard::Map(buckets, guard) => attempt(buckets.map.get(&key.in_map(), guard), read, n),
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
        let (entry, engine) = (self.keyspace.entry(pin, key), &self.keyspace.engine);
        if let Some(hot) = &self.keyspace.hot {
            return self.keyspace.try_acquire_hot(hot, entry, Now(engine), missed, n);
        }
        if missed == Miss::LostRace
            && let Some(bucket) = entry.get()
            && let Some(done) = engine.attempt_again(bucket, Now(engine), n)
        {
            return exactly(n, done);
        }
        KeyCall { inner: self, entry, options: CallOptions::NOW }.decide(n)
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
            Ok(done) => exactly(n, done),
            Err(_) => {
                let options = CallOptions { now: Some(now), ..CallOptions::NOW };
                KeyCall { inner: self, entry: self.keyspace.entry(pin, key), options }.decide(n)
            }
        }
    }
}

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
        let decision = call.decision(outcome, reading);
        Taken {
            receipt: outcome.granted.then(receipt),
            granted: decision.unwrap_or_else(|_| call.granted(outcome, &reading)),
            decision,
        }
    }
}

/// A call on one key, with its entry looked up by hash.
pub(crate) struct KeyCall<'a, K, Q: ?Sized, S> {
    pub(crate) inner: &'a Inner<K, S>,
    pub(crate) entry: KeyEntry<'a, K, Q>,
    pub(crate) options: CallOptions<'a>,
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyCall<'_, K, Q, S> {
    /// Takes `n` tokens, all or none.
    pub(crate) fn try_acquire(self, n: u64) -> Result<Granted, Denied> {
        match self.options {
            CallOptions { plan: None, now: Some(now) } => {
                self.inner.try_acquire_at(self.entry.pin, self.entry.key, now, n)
            }
            _ => self.decide(n),
        }
    }

    /// Takes `n` tokens, without an attempt.
    #[cold]
    pub(crate) fn decide(self, n: u64) -> Result<Granted, Denied> {
        let KeyCall { inner, entry, options } = self;
        if let CallOptions { plan: None, now: Some(now) } = options
            && let Some(hot) = &inner.keyspace.hot
        {
            return inner.keyspace.try_acquire_hot(
                hot,
                entry,
                At(&inner.keyspace.engine, now),
                Miss::StaleReading,
                n,
            );
        }
        inner.hook.observe(n, self.take(Take::Exactly(n)).decision)
    }

    pub(crate) fn acquire_up_to(self, n: u64) -> Granted {
        let taken = self.take(Take::UpTo(n));
        self.inner.hook.observe_up_to(n, taken.granted, taken.decision)
    }

    pub(crate) fn refund(self, n: u64) {
        if let (Some(found), Ok(plan)) = (self.entry.get(), self.plan()) {
            self.inner.keyspace.settle_found(Known::of(found), plan, Settle::Refund(n));
        }
    }

    pub(crate) fn peek(self) -> Snapshot {
        let looked = self.look(Take::Exactly(0));
        looked.unwrap_or_else(|denied| Granted::anyway(0, denied.remaining())).into()
    }

    /// Returns whether the key has an entry.
    pub(crate) fn is_held(&self) -> bool {
        self.entry.get().is_some()
    }

    /// Returns the decision on a take, without the take.
    pub(crate) fn look(&self, take: Take) -> Result<Granted, Denied> {
        let (call, engine) = (Call { take, plan: self.plan()? }, &self.inner.keyspace.engine);
        let entry = self.entry.under(call.plan.as_ref());
        let Done { outcome, reading, .. } = match self.options.now {
            None => protocol::peek(engine, entry, Now(engine), call),
            Some(now) => protocol::peek(engine, entry, At(engine, now), call),
        };
        call.decision(outcome, reading)
    }

    /// Returns the plan of the call, else the plan of the key.
    fn plan(&self) -> Result<Option<Plan>, Denied> {
        match (self.options.plan, &self.inner.plans) {
            (None, None) => Ok(None),
            (Some(plan), _) if plan.limiter != self.inner.keyspace.id => Err(Denied::foreign_plan()),
            (Some(plan), _) => Ok(Some(*plan)),
            (None, Some(plans)) => Ok(plans.of(self.entry)),
        }
    }

    fn take(&self, take: Take) -> Taken {
        let engine = &self.inner.keyspace.engine;
        let plan = match self.plan() {
            Ok(plan) => plan,
            Err(denied) => return Taken::new(take.into(), Err(denied)),
        };
        let (entry, call) = (self.entry.under(plan.as_ref()), Call { take, plan });
        let done = match self.options.now {
            None => protocol::acquire(engine, entry, Now(engine), call),
            Some(now) => protocol::acquire(engine, entry, At(engine, now), call),
        };
        Taken::new(call, done)
    }

    /// Takes tokens of the key, shows the decision to the hook, and returns a receipt for the take.
    ///
    /// Where shadow mode overruled a refusal the receipt is void: nothing can be given back.
    pub(crate) fn receive(&self, take: Take) -> Result<(Granted, Receipt), Denied> {
        let KeyCall { inner, entry, .. } = self;
        let removals = inner.keyspace.shard(entry.pin, entry.key).latest();
        let taken = self.take(take);
        let granted = inner.hook.observe(take.tokens(), taken.decision)?;
        let receipt = taken.receipt.unwrap_or_else(|| Receipt::void(inner.keyspace.engine.clock.moment()));
        Ok((granted, receipt.counted_from(removals)))
    }

    /// Like [`receive`](KeyCall::receive), with a receipt that is valid without the key.
    pub(crate) fn receive_by_entry(&self, take: Take) -> Result<(Granted, Receipt), Denied> {
        let (granted, mut receipt) = self.receive(take)?;
        if receipt.origin == Origin::Own {
            receipt.origin = match self.entry.pin {
                StoreGuard::Map(buckets, guard) => {
                    let found = buckets.map.get_key_value(&self.entry.key.in_map(), guard);
                    found.map_or(Origin::Nowhere, |(stored, _)| Origin::Entry(stored.tag.packed()))
                }
                StoreGuard::Table(_) => Origin::Inline(self.entry.key.full),
            };
        }
        Ok((granted, receipt))
    }

    /// Undoes the take of a receipt of this key.
    pub(crate) fn undo(self, receipt: &Receipt) {
        let (keyspace, entry) = (&self.inner.keyspace, self.entry);
        let shard = keyspace.shard(entry.pin, entry.key);
        let known = match receipt.origin {
            Origin::Own => entry.get().map(|found| Known::since(found, shard, receipt)),
            _ => keyspace.bucket_of(entry.pin, receipt),
        };
        if let Some(known) = known {
            keyspace.settle_found(known, receipt.plan, Settle::Undo(receipt));
        }
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> Inner<K, S> {
    pub(crate) fn reserve<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        options: CallOptions<'_>,
        n: u64,
        max_wait: u64,
    ) -> Reserved<'_> {
        // In shadow mode no caller waits, either.
        let take = match max_wait == 0 || self.hook.is_shadow() {
            true => Take::Exactly(n),
            false => Take::Reserve { n, max_wait },
        };
        let (granted, receipt) =
            self.call(&self.keyspace.store.pin(), key, options).receive_by_entry(take)?;
        Ok(Reservation::new(&self.keyspace, receipt, granted))
    }

    pub(crate) fn hold<Q>(&self, key: &Q, options: CallOptions<'_>, n: u64) -> Result<Hold<'_>, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        // The later settlement needs a bucket with a level.
        let take = if n == 0 { Take::Touch } else { Take::Exactly(n) };
        let (granted, receipt) =
            self.call(&self.keyspace.store.pin(), key, options).receive_by_entry(take)?;
        Ok(Hold::new(&self.keyspace, receipt, granted))
    }
}
