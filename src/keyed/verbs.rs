//! The verbs on a found bucket of a key, and on the keys of a limiter that spreads those that are contended.

use std::hash::Hash;

use crate::bucket::atomic::{First, Missed, Read, ReadOnce, Word};
use crate::bucket::engine::{Done, Place};
use crate::bucket::lease::{Spread, is_gone, place};
use crate::bucket::live_terms::Regimes;
use crate::bucket::reservation::{Ledger, Receipt};
use crate::keyed::entry::Slot;
use crate::keyed::hot::{As, Hot, Known, Watched};
use crate::keyed::id::{Id, Tag};
use crate::keyed::key::{ByKey, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::Share;
use crate::keyed::removals::Since;
use crate::keyed::store::{Found, Pin};
use crate::keyed::table::hash_of;
use crate::sync::yield_now;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;
use crate::word::state::{Outcome, Spot, State};
use crate::word::terms::{Pace, Reading, Terms};
use crate::word::verb::{Step, Take};

/// Others who spread a key, or fold it back, send a call back to the start.
const MOST_ROUNDS: usize = 1_000;
/// Attempts on a word before the whole way is gone.
const MOST_ATTEMPTS: usize = 16;

impl<K: Hash + Eq> Keyspace<K> {
    /// Takes `n` tokens, under no plan.
    #[inline(never)]
    pub(crate) fn try_acquire_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        pin: &Pin<'_, K>,
        key: ByKey<'_, Q>,
        read: impl ReadOnce,
        n: u64,
    ) -> Result<Granted, Denied> {
        for _ in 0..MOST_ATTEMPTS {
            let attempt = match pin {
                Pin::Map(buckets, guard) => match buckets.map.get(&key, guard) {
                    Some(bucket) => self.attempt_hot(hot, pin, (bucket, Id::of(bucket)), read, n),
                    None => break,
                },
                Pin::Table(table) => match table.find(key.full) {
                    Some(held) => self.attempt_hot(hot, pin, (held, held.id()), read, n),
                    None => break,
                },
            };
            match attempt {
                Ok(decision) => return decision,
                Err(Missed::Lost) => self.note_lost(hot, self.place(pin, key)),
                Err(Missed::Unfit) => break,
            }
        }
        let (done, _) = self.run_hot(hot, self.place(pin, key), read, Take(n));
        done.and_then(|done| Take(n).decision(done))
    }

    /// One attempt at a bucket as it was found.
    #[inline(always)]
    fn attempt_hot<W: Word>(
        &self,
        hot: &Hot,
        pin: &Pin<'_, K>,
        (word, id): (W, Id),
        read: impl ReadOnce,
        n: u64,
    ) -> Result<Result<Granted, Denied>, Missed> {
        match hot.found(word, id, &self.rules) {
            Some(As::Whole(word)) => {
                let done = word.attempt(First::Word, read, n)?;
                self.fold_in_turn(hot, pin, done.1.nanos());
                Ok(Take(n).decision(done))
            }
            Some(As::Spread(spread)) => {
                let own = place();
                match spread.cells.of(own).take(spread.life, n) {
                    Some(granted) => Ok(Ok(granted)),
                    None => spread.acquire(own, read, n).ok_or(Missed::Unfit),
                }
            }
            None => Err(Missed::Unfit),
        }
    }

    /// Somebody else committed on a key's bucket: if that is so often, it is spread.
    #[cold]
    fn note_lost<Q: ToKey<K> + ?Sized>(&self, hot: &Hot, place: Slot<'_, K, Q>) {
        // Spread before it is charged, it would be neither.
        let Some(found) = place.search().filter(|found| found.state().is_level()) else { return };
        let (id, now) = (found.id(), self.rules.clock.nanos());
        let seat = hot.seat(id);
        if !seat.note_lost(id, now) {
            return;
        }
        self.fold_if_idle(hot, place.pin, seat, now);
        match (place.pin, found) {
            (Pin::Map(buckets, guard), Found::Boxed(bucket)) => {
                let stored = buckets.map.get_key_value(&place.key, guard);
                if let Some((stored, _)) = stored.filter(|(_, now)| std::ptr::eq(*now, bucket)) {
                    hot.promote(id, stored.tag, now, || bucket.state() == State::SEALED);
                }
            }
            // A slot has no end.
            _ => hot.promote(id, Tag::unpack(0), now, || false),
        }
    }

    /// Runs a step on a key's bucket that is under no plan, and tells how many tokens were leased beside what it found.
    pub(crate) fn run_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, Q>,
        read: impl Read<Reading>,
        step: impl Step,
    ) -> (Done<Terms>, u64) {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = place.search() else {
                match place.admit(read, step) {
                    Some(done) => return (done, 0),
                    None => place.pause(),
                }
                continue;
            };
            let seen = self.with(hot, Known { id: found.id(), word: found }, |bucket| match bucket {
                As::Spread(spread) => {
                    let (outcome, reading, leased) = spread.run(read, step);
                    (!is_gone(&outcome)).then_some(((outcome, reading), leased))
                }
                As::Whole(word) => {
                    let done = self.rules.first_charge(word, place.overflow(), read, step)?;
                    Some((done, 0))
                }
            });
            if let Some((done, leased)) = seen {
                return (Ok(done), leased);
            }
            place.bury();
        }
        let now = self.rules.clock.nanos();
        (Err(Denied::full(step.most(), now, Some(now))), 0)
    }

    /// As [`run_hot`](Keyspace::run_hot), under a plan: the key is spread no more for it.
    pub(crate) fn run_hot_under<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Done<P> {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = place.search() else {
                match place.admit(read, step) {
                    Some(done) => return done,
                    None => place.pause(),
                }
                continue;
            };
            self.fold(hot, found);
            let word = hot.whole(found, found.id());
            if let Some(done) = self.rules.first_charge(word, place.overflow(), read, step) {
                return Ok(done);
            }
            place.bury();
        }
        let now = self.rules.clock.nanos();
        Err(Denied::full(step.most(), now, Some(now)))
    }

    /// What a step would come to on the key's bucket, under no plan.
    pub(crate) fn peek_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, Q>,
        read: impl Read<Reading>,
        step: impl Step,
    ) -> (Outcome, Reading) {
        let seen = place.search().and_then(|found| {
            self.with_again(hot, Known { id: found.id(), word: found }, |bucket| match bucket {
                As::Spread(spread) => {
                    let (outcome, reading, _) = spread.look(read, step);
                    (!is_gone(&outcome)).then_some((outcome, reading))
                }
                As::Whole(word) => {
                    let ((charged, outcome), reading) = self.rules.look(word, read, step);
                    charged.then_some((outcome, reading))
                }
            })
        });
        seen.unwrap_or_else(|| {
            let ((_, outcome), reading) = self.rules.look(place.overflow(), read, step);
            (outcome, reading)
        })
    }

    /// As [`peek_hot`](Keyspace::peek_hot), under a plan.
    pub(crate) fn peek_hot_under<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> (Outcome, Reading<P>) {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = place.search() else { break };
            self.fold(hot, found);
            let word = hot.whole(found, found.id());
            let ((charged, outcome), reading) = self.rules.look(word, read, step);
            if charged {
                return (outcome, reading);
            }
            if let Some(As::Whole(_)) = hot.found(found, found.id(), &self.rules) {
                break;
            }
        }
        let ((_, outcome), reading) = self.rules.look(place.overflow(), read, step);
        (outcome, reading)
    }

    /// Gives a found bucket to `settle`, as it is, until that comes to something, or the bucket is sealed. Under a plan it is
    /// spread no more for it.
    fn with_again<'a, W: Word, T>(
        &'a self,
        hot: &'a Hot,
        known: Known<W>,
        mut settle: impl FnMut(As<'a, W, Regimes>) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..MOST_ROUNDS {
            let done = self.with(hot, known, &mut settle);
            if done.is_some() || !known.word.state().is_level() {
                return done;
            }
        }
        None
    }

    fn with<'a, W: Word, T>(
        &'a self,
        hot: &'a Hot,
        Known { id, word }: Known<W>,
        run: impl FnOnce(As<'a, W, Regimes>) -> Option<T>,
    ) -> Option<T> {
        let bucket = hot.found(word, id, &self.rules);
        if bucket.is_none() {
            yield_now();
        }
        bucket.and_then(run)
    }

    /// Gives back `n` tokens.
    pub(crate) fn refund_found<W: Word>(&self, known: Known<W>, n: u64, plan: Option<Plan>) {
        let rules = &self.rules;
        match &self.hot {
            None => {
                rules.refund(known.word, n, plan);
            }
            Some(hot) => {
                self.with_again(hot, known, |bucket| match bucket {
                    As::Spread(spread) if plan.is_none() => spread.refund(n).then_some(()),
                    As::Spread(spread) => folded(hot, spread),
                    As::Whole(word) => rules.refund(word, n, plan).then_some(()),
                });
            }
        }
        self.was_given();
    }

    /// Gives back what a receipt is for, if nobody has taken since.
    pub(crate) fn give_back_found<W: Word>(&self, known: Known<W>, receipt: &Receipt) {
        let rules = &self.rules;
        match &self.hot {
            None => {
                rules.give_back(known.word, receipt);
            }
            Some(hot) => {
                self.with_again(hot, known, |bucket| match bucket {
                    As::Spread(spread) if receipt.plan.is_none() => spread.give_back(receipt).then_some(()),
                    As::Spread(spread) => folded(hot, spread),
                    As::Whole(word) => rules.give_back(word, receipt).then_some(()),
                });
            }
        }
        self.was_given();
    }

    /// Gives back what the bucket would still have, had it not been taken.
    pub(crate) fn undo_found<W: Word>(&self, known: Known<W>, receipt: &Receipt) {
        let rules = &self.rules;
        match &self.hot {
            None => {
                rules.undo(known.word, receipt);
            }
            Some(hot) => {
                self.with_again(hot, known, |bucket| match bucket {
                    As::Spread(spread) if receipt.plan.is_none() => spread.undo(receipt).then_some(()),
                    As::Spread(spread) => folded(hot, spread),
                    As::Whole(word) => rules.undo(word, receipt).then_some(()),
                });
            }
        }
        self.was_given();
    }

    /// Takes up to `n` tokens, on credit if need be, and tells how many.
    pub(crate) fn charge_found<W: Word>(&self, known: Known<W>, n: u64, plan: Option<Plan>) -> u64 {
        let rules = &self.rules;
        let Some(hot) = &self.hot else { return rules.charge_later(known.word, n, plan).unwrap_or(0) };
        let charged = self.with_again(hot, known, |bucket| match bucket {
            As::Spread(spread) if plan.is_none() => spread.charge(n),
            As::Spread(spread) => folded(hot, spread),
            As::Whole(word) => rules.charge_later(word, n, plan),
        });
        charged.unwrap_or(0)
    }

    /// The bucket that a receipt is for, if it is still there.
    pub(crate) fn bucket_of<'a>(
        &'a self,
        pin: &'a Pin<'_, K>,
        receipt: &Receipt,
    ) -> Option<Known<Since<'a, Found<'a>>>> {
        let since = |found: Found<'a>, hash| Known {
            id: found.id(),
            word: self.removals.of(hash).since(receipt.removals, found),
        };
        match (receipt.spot, pin) {
            (Spot::Entry(tag), Pin::Map(buckets, guard)) => {
                let tag = Tag::unpack(tag);
                buckets.map.get(&tag, guard).map(|bucket| since(Found::Boxed(bucket), tag.hash))
            }
            (Spot::Inline(hash), Pin::Table(table)) => {
                table.search(hash).map(|held| since(Found::Inline(held), hash_of(hash)))
            }
            (Spot::Overflow(hash), _) => {
                let share = Share::of(receipt.plan.as_ref());
                let (found, shard) = (Found::Boxed(self.shares.bucket(share, hash)), self.removals.of(hash));
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
        if !matches!(receipt.spot, Spot::Overflow(_))
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
fn folded<W: Word, T>(hot: &Hot, spread: Spread<'_, Watched<'_, W>>) -> Option<T> {
    hot.fold(spread);
    None
}
