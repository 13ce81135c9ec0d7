//! The verbs on a found bucket of a key, and on the keys of a limiter that spreads those that are contended.

use std::hash::Hash;

use crate::bucket::atomic::{BucketRef, Miss, Order, Read, ReadOnce};
use crate::bucket::engine::Done;
use crate::bucket::lease::{Spread, is_gone, thread_index};
use crate::bucket::reservation::{Ledger, Receipt};
use crate::keyed::entry::KeyEntry;
use crate::keyed::hot::{Guarded, HotKeys, Known, Mode};
use crate::keyed::id::{BucketId, EntryId};
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::OverflowSet;
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::keyed::table::hash_of;
use crate::sync::yield_now;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;
use crate::word::state::{Origin, Outcome, State};
use crate::word::terms::{Reading, Refill, Terms};
use crate::word::verb::Take;

/// Others who spread a key, or fold it back, send a call back to the start.
const MOST_ROUNDS: usize = 1_000;
/// Attempts on a word before the whole way is gone.
const MOST_ATTEMPTS: usize = 16;

impl<K: Hash + Eq> Keyspace<K> {
    /// Takes `n` tokens, under no plan.
    #[inline(never)]
    pub(crate) fn try_acquire_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &HotKeys,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        read: impl ReadOnce,
        n: u64,
    ) -> Result<Granted, Denied> {
        for _ in 0..MOST_ATTEMPTS {
            let attempt = match pin {
                StoreGuard::Map(buckets, guard) => match buckets.map.get(&key, guard) {
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
                Err(Miss::LostRace) => self.note_lost(hot, self.entry(pin, key)),
                Err(Miss::StaleReading) => break,
            }
        }
        let (done, _) = self.run_hot(hot, self.entry(pin, key), read, Take::Exactly(n));
        done.and_then(|done| Take::Exactly(n).decision(done))
    }

    /// One attempt at a bucket as it was found.
    #[inline(always)]
    fn attempt_hot<W: BucketRef>(
        &self,
        hot: &HotKeys,
        pin: &StoreGuard<'_, K>,
        (word, id): (W, BucketId),
        read: impl ReadOnce,
        n: u64,
    ) -> Result<Result<Granted, Denied>, Miss> {
        match hot.found(word, id, &self.engine) {
            Some(Mode::Plain(word)) => {
                let done = word.attempt(Order::WordFirst, read, n)?;
                self.demote_in_turn(hot, pin, done.1.nanos());
                Ok(Take::Exactly(n).decision(done))
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

    /// Somebody else committed on a key's bucket: if that is so often, it is spread.
    #[cold]
    fn note_lost<Q: ToKey<K> + ?Sized>(&self, hot: &HotKeys, entry: KeyEntry<'_, K, Q>) {
        // Spread before it is charged, it would be neither.
        let Some(found) = entry.get().filter(|found| found.state().is_level()) else { return };
        let (id, now) = (found.id(), self.engine.clock.nanos());
        let slot = hot.slot(id);
        if !slot.note_lost(id, now) {
            return;
        }
        self.demote_if_idle(hot, entry.pin, slot, now);
        match (entry.pin, found) {
            (StoreGuard::Map(buckets, guard), FoundBucket::Map(bucket)) => {
                let stored = buckets.map.get_key_value(&entry.key, guard);
                if let Some((stored, _)) = stored.filter(|(_, now)| std::ptr::eq(*now, bucket)) {
                    hot.promote(id, stored.tag, now, || bucket.state() == State::SEALED);
                }
            }
            // A slot has no end.
            _ => hot.promote(id, EntryId::unpack(0), now, || false),
        }
    }

    /// Runs a step on a key's bucket that is under no plan, and tells how many tokens were leased beside what it found.
    pub(crate) fn run_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &HotKeys,
        entry: KeyEntry<'_, K, Q>,
        read: impl Read<Reading>,
        step: Take,
    ) -> (Done<Terms>, u64) {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = entry.get() else {
                match entry.insert(read, step) {
                    Some(done) => return (done, 0),
                    None => entry.back_off(),
                }
                continue;
            };
            let seen = self.with(hot, Known { id: found.id(), word: found }, |bucket| match bucket {
                Mode::Spread(spread) => {
                    let (outcome, reading, leased) = spread.run(read, step);
                    (!is_gone(&outcome)).then_some(((outcome, reading), leased))
                }
                Mode::Plain(word) => {
                    let done = protocol::charge_new(&self.engine, word, entry.overflow_bucket(), read, step)?;
                    Some((done, 0))
                }
            });
            if let Some((done, leased)) = seen {
                return (Ok(done), leased);
            }
            entry.remove_sealed();
        }
        let now = self.engine.clock.nanos();
        (Err(Denied::full(step.tokens(), now, Some(now))), 0)
    }

    /// As [`run_hot`](Keyspace::run_hot), under a plan: the key is spread no more for it.
    pub(crate) fn run_hot_under<Q: ToKey<K> + ?Sized, P: Refill>(
        &self,
        hot: &HotKeys,
        entry: KeyEntry<'_, K, Q>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> Done<P> {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = entry.get() else {
                match entry.insert(read, step) {
                    Some(done) => return done,
                    None => entry.back_off(),
                }
                continue;
            };
            self.demote(hot, found);
            let word = hot.whole(found, found.id());
            if let Some(done) = protocol::charge_new(&self.engine, word, entry.overflow_bucket(), read, step)
            {
                return Ok(done);
            }
            entry.remove_sealed();
        }
        let now = self.engine.clock.nanos();
        Err(Denied::full(step.tokens(), now, Some(now)))
    }

    /// What a step would come to on the key's bucket, under no plan.
    pub(crate) fn peek_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &HotKeys,
        entry: KeyEntry<'_, K, Q>,
        read: impl Read<Reading>,
        step: Take,
    ) -> (Outcome, Reading) {
        let seen = entry.get().and_then(|found| {
            self.with_again(hot, Known { id: found.id(), word: found }, |bucket| match bucket {
                Mode::Spread(spread) => {
                    let (outcome, reading, _) = spread.look(read, step);
                    (!is_gone(&outcome)).then_some((outcome, reading))
                }
                Mode::Plain(word) => {
                    let ((charged, outcome), reading) = self.engine.look(word, read, step);
                    charged.then_some((outcome, reading))
                }
            })
        });
        seen.unwrap_or_else(|| {
            let ((_, outcome), reading) = self.engine.look(entry.overflow_bucket(), read, step);
            (outcome, reading)
        })
    }

    /// As [`peek_hot`](Keyspace::peek_hot), under a plan.
    pub(crate) fn peek_hot_under<Q: ToKey<K> + ?Sized, P: Refill>(
        &self,
        hot: &HotKeys,
        entry: KeyEntry<'_, K, Q>,
        read: impl Read<Reading<P>>,
        step: Take,
    ) -> (Outcome, Reading<P>) {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = entry.get() else { break };
            self.demote(hot, found);
            let word = hot.whole(found, found.id());
            let ((charged, outcome), reading) = self.engine.look(word, read, step);
            if charged {
                return (outcome, reading);
            }
            if let Some(Mode::Plain(_)) = hot.found(found, found.id(), &self.engine) {
                break;
            }
        }
        let ((_, outcome), reading) = self.engine.look(entry.overflow_bucket(), read, step);
        (outcome, reading)
    }

    /// Gives a found bucket to `settle`, as it is, until that comes to something, or the bucket is sealed. Under a plan it is
    /// spread no more for it.
    fn with_again<'a, W: BucketRef, T>(
        &'a self,
        hot: &'a HotKeys,
        known: Known<W>,
        mut settle: impl FnMut(Mode<'a, W>) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..MOST_ROUNDS {
            let done = self.with(hot, known, &mut settle);
            if done.is_some() || !known.word.state().is_level() {
                return done;
            }
        }
        None
    }

    fn with<'a, W: BucketRef, T>(
        &'a self,
        hot: &'a HotKeys,
        Known { id, word }: Known<W>,
        run: impl FnOnce(Mode<'a, W>) -> Option<T>,
    ) -> Option<T> {
        let bucket = hot.found(word, id, &self.engine);
        if bucket.is_none() {
            yield_now();
        }
        bucket.and_then(run)
    }

    /// Gives back `n` tokens.
    pub(crate) fn refund_found<W: BucketRef>(&self, known: Known<W>, n: u64, plan: Option<Plan>) {
        let engine = &self.engine;
        match &self.hot {
            None => {
                engine.refund(known.word, n, plan);
            }
            Some(hot) => {
                self.with_again(hot, known, |bucket| match bucket {
                    Mode::Spread(spread) if plan.is_none() => spread.refund(n).then_some(()),
                    Mode::Spread(spread) => demoted(hot, spread),
                    Mode::Plain(word) => engine.refund(word, n, plan).then_some(()),
                });
            }
        }
        self.was_given();
    }

    /// Gives back what a receipt is for, if nobody has taken since.
    pub(crate) fn give_back_found<W: BucketRef>(&self, known: Known<W>, receipt: &Receipt) {
        let engine = &self.engine;
        match &self.hot {
            None => {
                engine.give_back(known.word, receipt);
            }
            Some(hot) => {
                self.with_again(hot, known, |bucket| match bucket {
                    Mode::Spread(spread) if receipt.plan.is_none() => spread.give_back(receipt).then_some(()),
                    Mode::Spread(spread) => demoted(hot, spread),
                    Mode::Plain(word) => engine.give_back(word, receipt).then_some(()),
                });
            }
        }
        self.was_given();
    }

    /// Gives back what the bucket would still have, had it not been taken.
    pub(crate) fn undo_found<W: BucketRef>(&self, known: Known<W>, receipt: &Receipt) {
        let engine = &self.engine;
        match &self.hot {
            None => {
                engine.undo(known.word, receipt);
            }
            Some(hot) => {
                self.with_again(hot, known, |bucket| match bucket {
                    Mode::Spread(spread) if receipt.plan.is_none() => spread.undo(receipt).then_some(()),
                    Mode::Spread(spread) => demoted(hot, spread),
                    Mode::Plain(word) => engine.undo(word, receipt).then_some(()),
                });
            }
        }
        self.was_given();
    }

    /// Takes up to `n` tokens, on credit if need be, and tells how many.
    pub(crate) fn charge_found<W: BucketRef>(&self, known: Known<W>, n: u64, plan: Option<Plan>) -> u64 {
        let engine = &self.engine;
        let Some(hot) = &self.hot else { return engine.charge_later(known.word, n, plan).unwrap_or(0) };
        let charged = self.with_again(hot, known, |bucket| match bucket {
            Mode::Spread(spread) if plan.is_none() => spread.charge(n),
            Mode::Spread(spread) => demoted(hot, spread),
            Mode::Plain(word) => engine.charge_later(word, n, plan),
        });
        charged.unwrap_or(0)
    }

    /// The bucket that a receipt is for, if it is still there.
    pub(crate) fn bucket_of<'a>(
        &'a self,
        pin: &'a StoreGuard<'_, K>,
        receipt: &Receipt,
    ) -> Option<Known<UnlessRemoved<'a, FoundBucket<'a>>>> {
        let since = |found: FoundBucket<'a>, hash| Known {
            id: found.id(),
            word: self.removals.of(hash).since(receipt.removals, found),
        };
        match (receipt.origin, pin) {
            (Origin::Entry(tag), StoreGuard::Map(buckets, guard)) => {
                let tag = EntryId::unpack(tag);
                buckets.map.get(&tag, guard).map(|bucket| since(FoundBucket::Map(bucket), tag.hash))
            }
            (Origin::Inline(hash), StoreGuard::Table(table)) => {
                table.search(hash).map(|held| since(FoundBucket::Table(held), hash_of(hash)))
            }
            (Origin::Overflow(hash), _) => {
                let share = OverflowSet::of(receipt.plan.as_ref());
                let (found, shard) =
                    (FoundBucket::Map(self.overflow.bucket(share, hash)), self.removals.of(hash));
                // No caller removes an overflow bucket.
                Some(Known { id: found.id(), word: shard.since(shard.latest(), found) })
            }
            _ => None,
        }
    }
}

impl<K: Hash + Eq> Ledger for Keyspace<K> {
    fn give_back(&self, receipt: &Receipt) {
        let pin = self.store.pin();
        if let Some(bucket) = self.bucket_of(&pin, receipt) {
            self.give_back_found(bucket, receipt);
        }
    }

    fn refund(&self, receipt: &Receipt, n: u64) {
        let pin = self.store.pin();
        // What comes back to a bucket that is shared would be granted to others.
        if !matches!(receipt.origin, Origin::Overflow(_))
            && let Some(bucket) = self.bucket_of(&pin, receipt)
        {
            self.refund_found(bucket, n, receipt.plan);
        }
    }

    fn charge(&self, receipt: &Receipt, n: u64) -> u64 {
        let pin = self.store.pin();
        match self.bucket_of(&pin, receipt) {
            Some(bucket) => self.charge_found(bucket, n, receipt.plan),
            None => 0,
        }
    }
}

/// What is to be run on the bucket comes after it was folded back.
fn demoted<W: BucketRef, T>(hot: &HotKeys, spread: Spread<'_, Guarded<'_, W>>) -> Option<T> {
    hot.demote(spread);
    None
}
