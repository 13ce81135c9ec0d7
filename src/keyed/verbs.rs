//! The hot path of a limiter that spreads contended keys, and settlements by receipt.

use std::hash::Hash;

use crate::bucket::atomic::{BucketRef, Miss, Order, ReadClock};
use crate::bucket::lease::{Mode, thread_index};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::entry::KeyEntry;
use crate::keyed::hot::{Guarded, HotKeys};
use crate::keyed::id::{BucketId, EntryId};
use crate::keyed::key::ToKey;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::OverflowSet;
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::store::{FoundBucket, Known, StoreGuard};
use crate::keyed::table::hash_of;
use crate::sync::yield_now;
use crate::word::decision::{Denied, Granted, exactly};
use crate::word::plan::Plan;
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Take};

/// Attempts on a word before falling back to the slow path.
const MAX_ATTEMPTS: usize = 16;

impl<K: Hash + Eq> Keyspace<K> {
    /// Takes `n` tokens under no plan, after an attempt that `missed`.
    #[inline(never)]
    pub(crate) fn try_acquire_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &HotKeys,
        entry: KeyEntry<'_, K, Q>,
        read: impl ReadClock,
        missed: Miss,
        n: u64,
    ) -> Result<Granted, Denied> {
        let KeyEntry { pin, key, .. } = entry;
        if missed == Miss::LostRace {
            self.note_lost(hot, entry);
        }
        for _ in 0..MAX_ATTEMPTS {
            let attempt = match pin {
                StoreGuard::Map(buckets, guard) => match buckets.map.get(&key.in_map(), guard) {
                    Some(bucket) => self.attempt_hot(hot, pin, (bucket, BucketId::of(bucket)), read, n),
                    None => break,
                },
                StoreGuard::Table(table) => match table.find(key.full) {
                    Some(held) => self.attempt_hot(hot, pin, (held, held.id()), read, n),
                    None => break,
                },
            };
            match attempt {
                Ok(decision) => return decision,
                Err(Miss::LostRace) => self.note_lost(hot, entry),
                Err(Miss::StaleReading) => break,
            }
        }
        let call = Call::from(Take::Exactly(n));
        let done = protocol::acquire(&self.engine, entry, read, call)?;
        call.decision(done.outcome, done.reading)
    }

    /// Attempts once to take `n` tokens from a bucket in its present mode.
    #[inline(always)]
    fn attempt_hot<W: BucketRef>(
        &self,
        hot: &HotKeys,
        pin: &StoreGuard<'_, K>,
        (word, id): (W, BucketId),
        read: impl ReadClock,
        n: u64,
    ) -> Result<Result<Granted, Denied>, Miss> {
        match hot.found(word, id, &self.engine) {
            Some(Mode::Plain(word)) => {
                let done = word.attempt(Order::WordFirst, read, n)?;
                if hot.in_turn(done.1.at).is_some() {
                    self.demote_in_turn(hot, pin, done.1.at);
                }
                Ok(exactly(n, done))
            }
            Some(Mode::Spread(spread)) => {
                let own = thread_index();
                match spread.cells.of(own).take(spread.generation, n) {
                    Some(granted) => Ok(Ok(granted)),
                    None => spread.acquire(own, read, n).ok_or(Miss::StaleReading),
                }
            }
            None => Err(Miss::StaleReading),
        }
    }

    /// Notes a lost race on a key's bucket, and promotes the key after many of them.
    #[cold]
    fn note_lost<Q: ToKey<K> + ?Sized>(&self, hot: &HotKeys, entry: KeyEntry<'_, K, Q>) {
        // An uncharged bucket must not be promoted: it has neither a level nor a stamp.
        let Some(found) = entry.get().filter(|found| found.state().is_level()) else { return };
        let (id, now) = (found.id(), self.engine.clock.nanos());
        let slot = hot.slot(id);
        if !slot.note_lost(id, now) {
            return;
        }
        self.demote_if_idle(hot, entry.pin, slot, now);
        match (entry.pin, found) {
            (StoreGuard::Map(buckets, guard), FoundBucket::Map(bucket)) => {
                let stored = buckets.map.get_key_value(&entry.key.in_map(), guard);
                if let Some((stored, _)) = stored.filter(|(_, now)| std::ptr::eq(*now, bucket)) {
                    hot.promote(id, stored.tag, now, || bucket.state() == State::SEALED);
                }
            }
            // A table slot is never freed, so there is no seal to check.
            _ => hot.promote(id, EntryId::unpack(0), now, || false),
        }
    }

    /// Returns a bucket in its present mode; `None` if the mode changes meanwhile.
    ///
    /// Under a plan a spread bucket is demoted.
    pub(crate) fn mode<'a, W: BucketRef>(
        &'a self,
        hot: &'a HotKeys,
        Known { id, word }: Known<W>,
        plan: Option<Plan>,
    ) -> Option<Mode<'a, Guarded<'a, W>>> {
        match hot.found(word, id, &self.engine) {
            None => yield_now(),
            Some(Mode::Spread(spread)) if plan.is_some() => hot.demote(spread),
            mode => return mode,
        }
        None
    }

    /// Runs `step` on a bucket in its present mode, until it has a result or the bucket is sealed.
    pub(crate) fn try_modes<'a, W: BucketRef, T>(
        &'a self,
        hot: &'a HotKeys,
        known: Known<W>,
        plan: Option<Plan>,
        step: impl Fn(Mode<'a, Guarded<'a, W>>) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..protocol::MAX_ROUNDS {
            let done = self.mode(hot, known, plan).and_then(&step);
            if done.is_some() || !known.word.state().is_level() {
                return done;
            }
        }
        None
    }

    /// Settles a take on the bucket that was found, and returns the tokens charged.
    pub(crate) fn settle_found<W: BucketRef>(
        &self,
        known: Known<W>,
        plan: Option<Plan>,
        settle: Settle<'_>,
    ) -> u64 {
        let engine = &self.engine;
        let charged = match &self.hot {
            None => engine.settle(known.word, plan, settle),
            Some(hot) => self.try_modes(hot, known, plan, |mode| mode.settle(engine, plan, settle)),
        };
        if !matches!(settle, Settle::Charge(_)) {
            self.was_given();
        }
        charged.unwrap_or(0)
    }

    /// Returns the bucket of a receipt, if it is still there.
    pub(crate) fn bucket_of<'a>(
        &'a self,
        pin: &'a StoreGuard<'_, K>,
        receipt: &Receipt,
    ) -> Option<Known<UnlessRemoved<'a, FoundBucket<'a>>>> {
        let (found, hash) = match (receipt.origin, pin) {
            (Origin::Entry(id), StoreGuard::Map(buckets, guard)) => {
                let id = EntryId::unpack(id);
                (FoundBucket::Map(buckets.map.get(&id, guard)?), id.hash)
            }
            (Origin::Inline(hash), StoreGuard::Table(table)) => {
                (FoundBucket::Table(table.search(hash)?), hash_of(hash))
            }
            (Origin::Overflow(hash), _) => {
                let set = OverflowSet::of(receipt.plan.as_ref());
                let found = FoundBucket::Map(self.overflow.bucket(set, hash));
                // No caller removes an overflow bucket.
                let removals = self.removals.of(hash).latest();
                let receipt = receipt.counted_from(removals);
                return Some(Known::since(found, self.removals.of(hash), &receipt));
            }
            _ => return None,
        };
        Some(Known::since(found, self.removals.of(hash), receipt))
    }
}

impl<K: Hash + Eq> Ledger for Keyspace<K> {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        let shared = matches!(receipt.origin, Origin::Overflow(_));
        let pin = self.store.pin();
        match self.bucket_of(&pin, receipt) {
            // Tokens refunded to a bucket that keys share would be granted to other keys.
            Some(_) if shared && matches!(settle, Settle::Refund(_)) => 0,
            Some(bucket) => self.settle_found(bucket, receipt.plan, settle),
            None => 0,
        }
    }
}
