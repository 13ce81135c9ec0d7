//! The buckets of a limiter as a save sees them, and the way of saved words back to their keys.
//!
//! *Invariant:* a restored key never has more tokens than its saved word, because it gets an entry
//! with that word, or the word is merged: into the bucket that the key has already, and without
//! room into the bucket that it shares. A merged bucket lacks the tokens that either lacked. So any
//! number of keys can be restored, into a limiter with room for fewer.

use std::collections::HashSet;
use std::hash::Hash;

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::bucket::engine::Engine;
use crate::keyed::idle::IdleCheck;
use crate::keyed::key::{EntryKey, KeyQuery, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::{BUCKETS, number_of};
use crate::keyed::protocol::{Entry, MAX_ROUNDS};
use crate::keyed::store::{FoundBucket, Store, StoreGuard};
use crate::keyed::table::{AT_ONCE, Filling, Resumed, Set, hashes_of};
use crate::rule::rate::Quota;
use crate::sync::{Ordering, fence, yield_now};
use crate::word::state::{Origin, Reading, State};

/// The identity of a held key: a table has its fingerprint only, and its set.
#[derive(Clone, Copy)]
pub(crate) enum Held<'a, K> {
    Key(&'a K),
    Fingerprint(u64, Set),
}

/// Takes of a bucket the tokens that `state` lacks. Returns the state that the bucket had; `None`
/// if it is sealed.
pub(crate) fn merge(engine: &Engine, bucket: impl BucketRef, state: State) -> Option<State> {
    let step = |found: State, reading: &Reading| match found {
        State::SEALED => (None, None),
        found => (Some(found), Some(found.merged(reading, state, engine.has_plans()))),
    };
    bucket.update(|_| engine.read(), step).0
}

/// Returns the hashes of the shared buckets of a key by its fingerprint. It is not known which of
/// the two is the key's.
fn shared_hashes(fingerprint: u64) -> [u32; 2] {
    hashes_of(fingerprint).map(|hash| KeyQuery::of(hash, &()).hash())
}

impl<K: Hash + Eq> Keyspace<K> {
    /// Calls `see` with each held key and its word.
    pub(crate) fn each(&self, mut see: impl FnMut(Held<'_, K>, State)) {
        match &self.store {
            Store::Map(buckets) => {
                let Some(map) = buckets.if_made() else { return };
                for (stored, bucket) in map.iter(&map.guard()) {
                    let state = bucket.state();
                    if state.is_level() {
                        see(Held::Key(&stored.key), state);
                    }
                }
            }
            Store::Table(table) => {
                table.each(|fingerprint, set, state| see(Held::Fingerprint(fingerprint, set), state));
            }
        }
    }

    /// Calls `see` with each held key that says more than no key, and its word.
    pub(crate) fn each_in_use(&self, mut see: impl FnMut(Held<'_, K>, State)) {
        let in_use = self.in_use();
        self.each(|key, state| {
            if in_use(state) {
                see(key, state);
            }
        });
    }

    /// Returns whether a word says more than no key, as of now.
    pub(crate) fn in_use(&self) -> impl Fn(State) -> bool {
        let (idle, starts_full) = (IdleCheck::now(&self.engine), self.engine.starts_full());
        move |state| !starts_full || !idle.is_idle(state)
    }

    /// Restores a key of a map.
    pub(crate) fn resume(&self, key: KeyQuery<'_, K>, state: State)
    where
        K: ToKey<K>,
    {
        let pin = self.store.pin();
        let StoreGuard::Map(map, guard) = &pin else { return };
        let entry = self.entry(&pin, key);
        let mut shares = false;
        for _ in 0..MAX_ROUNDS {
            if let Some(found) = entry.get() {
                match merge(&self.engine, found, state) {
                    None => entry.remove_sealed(),
                    // The thread that inserts it finds a level, and does not bring them.
                    Some(State::FULL) => return self.bring_debts(found, key.hash()),
                    Some(_) => return,
                }
            } else if shares {
                return;
            } else if let Ok(mut ticket) = entry.ticket(map, guard, self.engine.clock.nanos()) {
                let stored = EntryKey { tag: ticket.admits(key.hash()), key: key.key.to_key() };
                if let Some(bucket) = self.insert(map, stored, Bucket::from_state(state), guard) {
                    fence(Ordering::SeqCst);
                    self.close_outside(key.full);
                    self.bring_debts(bucket, key.hash());
                    return self.wake_outside(&pin, key.full);
                }
            } else {
                // Another thread may insert the key meanwhile.
                self.share(key.hash(), state);
                shares = true;
            }
        }
        self.share(key.hash(), state);
    }

    /// Begins to restore keys of a table that had this number of slots.
    pub(crate) fn filling(&self, slots: u64) -> Option<Filling<'_>> {
        match &self.store {
            Store::Map(_) => None,
            Store::Table(table) => table.filling(slots),
        }
    }

    /// Restores up to [`AT_ONCE`] keys of a table: their fingerprints and words.
    pub(crate) fn resume_fingerprints(&self, filling: Option<&Filling<'_>>, keys: &[(u64, State)], set: Set) {
        let mut entered = [None; AT_ONCE];
        if let Some(filling) = filling {
            // Before a slot waits for its word: the clock is the user's, and may panic.
            let reading = self.engine.read();
            entered = filling.enter(keys, set);
            // That of `protocol`, for all of them.
            fence(Ordering::SeqCst);
            for (entered, (fingerprint, state)) in entered.iter().zip(keys) {
                if let Some(entered) = entered {
                    hashes_of(*fingerprint).into_iter().for_each(|hash| self.close_outside(hash));
                    entered.open(self.with_debts(*fingerprint, *state, &reading));
                }
            }
            self.wake_all_outside(keys);
        }
        for (_, (fingerprint, state)) in
            entered.into_iter().zip(keys).filter(|(entered, _)| entered.is_none())
        {
            self.resume_fingerprint(*fingerprint, *state, filling.is_some());
        }
    }

    fn wake_all_outside(&self, keys: &[(u64, State)]) {
        let pin = self.store.pin();
        let hashes = keys.iter().flat_map(|(fingerprint, _)| hashes_of(*fingerprint));
        hashes.for_each(|hash| self.wake_outside(&pin, hash));
    }

    /// Returns the word of a new entry without the tokens that its key took from the buckets that
    /// it shared, of any plan.
    fn with_debts(&self, fingerprint: u64, state: State, reading: &Reading) -> State {
        let Some(parts) = self.parts_if_made() else { return state };
        let (mut state, plans) = (state, self.engine.has_plans());
        for hash in shared_hashes(fingerprint) {
            parts.overflow.each_of(hash, |shared| {
                // A reading of long before the load would earn the time in between twice.
                let plans = plans || !shared.accepts_stale(&reading.refill, reading.tick);
                state = state.merged(reading, shared, plans);
            });
        }
        state
    }

    /// Restores a key of a table that is in use, or is filled by this thread.
    fn resume_fingerprint(&self, fingerprint: u64, state: State, fills: bool) {
        let Store::Table(table) = &self.store else { return };
        let (hash, shared) = (hashes_of(fingerprint)[0], shared_hashes(fingerprint));
        let mut shares = false;
        for _ in 0..MAX_ROUNDS {
            let resumed = match table.search(hash) {
                Some(held) => Resumed::Already(held),
                None if shares && table.present(hash).is_none() => return,
                None if shares => Resumed::NoRoom,
                None => table.resume(hash, state, &self.engine, fills),
            };
            match resumed {
                Resumed::Inserted(held) => {
                    fence(Ordering::SeqCst);
                    hashes_of(fingerprint).into_iter().for_each(|hash| self.close_outside(hash));
                    shared.into_iter().for_each(|hash| self.bring_debts(held, hash));
                    return self.wake_all_outside(&[(fingerprint, state)]);
                }
                Resumed::Already(held) if merge(&self.engine, held, state).is_some() => return,
                Resumed::Already(_) => {}
                Resumed::NoRoom if shares => yield_now(),
                Resumed::NoRoom => {
                    // Another thread may insert the key meanwhile.
                    shared.into_iter().for_each(|hash| self.share(hash, state));
                    shares = true;
                }
            }
        }
        shared.into_iter().for_each(|hash| self.share(hash, state));
    }

    /// Takes of a new entry the tokens that its key took from the buckets that it shared, of any
    /// plan. The fence is that of [`protocol`](super::protocol).
    fn bring_debts(&self, bucket: impl BucketRef, hash: u32) {
        fence(Ordering::SeqCst);
        if let Some(parts) = self.parts_if_made() {
            parts.overflow.each_of(hash, |shared| _ = merge(&self.engine, bucket, shared));
        }
    }

    /// Takes the tokens of the buckets that a key without room shares, under any plan. The fence is
    /// that of [`protocol`](super::protocol).
    fn share(&self, hash: u32, state: State) {
        self.parts().overflow.take_under_any_plan(hash, |bucket| _ = merge(&self.engine, bucket, state));
        fence(Ordering::SeqCst);
    }

    /// Calls `see` with the buckets that keys without room share: of the limiter's own rule, or of
    /// a plan. Those that were not made are left out.
    pub(crate) fn each_shared(&self, see: impl FnMut(Option<Quota>, &[Bucket])) {
        if let Some(parts) = self.parts_if_made() {
            parts.overflow.each_set(see);
        }
    }

    /// Returns the most ticks in which a plan earns a unit; 0 if there is none.
    pub(crate) fn slowest_unit(&self) -> u64 {
        self.parts_if_made().map_or(0, |parts| parts.overflow.slowest_unit())
    }

    /// Returns whether the shared buckets of the limiter's own rule have takes under any plan.
    pub(crate) fn any_plan(&self) -> bool {
        self.parts_if_made().is_some_and(|parts| parts.overflow.any_plan())
    }

    /// Restores that the shared buckets of the limiter's own rule have takes under any plan: these
    /// words. Those of the `restored` plans have these takes already.
    pub(crate) fn resume_any_plan(&self, words: &[Option<State>], restored: &[Quota]) {
        self.parts().overflow.set_any_plan();
        self.each_shared(|plan, buckets| {
            if plan.is_some_and(|plan| !restored.contains(&plan)) {
                self.merge_all(buckets, words);
            }
        });
    }

    fn merge_all(&self, buckets: &[Bucket], words: &[Option<State>]) {
        for (bucket, word) in buckets.iter().zip(words) {
            word.map(|word| merge(&self.engine, bucket, word));
        }
    }

    /// Returns the saved word of each bucket that keys without room share, from pairs of its number
    /// and its word.
    ///
    /// By another hasher any of them may have been a key's. Each bucket then lacks as many tokens
    /// as the one that lacks most. With the sum of all, a few restarts would empty each bucket.
    pub(crate) fn shared_words(
        &self,
        same_hashes: bool,
        words: impl Iterator<Item = (u64, State)>,
    ) -> Vec<Option<State>> {
        let mut shared = vec![None; BUCKETS];
        if !same_hashes {
            let (reading, plans) = (self.engine.read(), self.engine.has_plans());
            let least = words.map(|(_, state)| state).reduce(|one, two| one.least(&reading, two, plans));
            shared.fill(least);
            return shared;
        }
        for (number, state) in words {
            let word = usize::try_from(number).ok().and_then(|number| shared.get_mut(number));
            word.into_iter().for_each(|word| *word = Some(state));
        }
        shared
    }

    /// Restores the buckets that keys without room share.
    ///
    /// A key among `sharers` has an entry, and may have taken the tokens from its bucket.
    pub(crate) fn resume_shared(&self, plan: Option<Quota>, words: &[Option<State>], sharers: &HashSet<u64>) {
        if words.iter().all(Option::is_none) {
            return;
        }
        self.merge_all(self.parts().overflow.made_for(plan), words);
        self.each_entry(|id, bucket, hashes| {
            for hash in hashes.iter().filter(|_| sharers.contains(&id)) {
                let found = words[number_of(*hash)].and_then(|word| merge(&self.engine, bucket, word));
                // The thread that inserts it finds a level, and does not bring them.
                if found == Some(State::FULL) {
                    self.bring_debts(bucket, *hash);
                }
            }
        });
    }

    /// Returns the numbers of the keys that have an entry.
    pub(crate) fn held(&self) -> HashSet<u64> {
        let mut held = HashSet::new();
        self.each_entry(|id, _, _| _ = held.insert(id));
        held
    }

    /// Returns the number of a key in a map, if it has an entry.
    pub(crate) fn id(&self, key: KeyQuery<'_, K>) -> Option<u64>
    where
        K: ToKey<K>,
    {
        match self.entry(&self.store.pin(), key).origin() {
            Some(Origin::Entry(id)) => Some(id),
            _ => None,
        }
    }

    /// Calls `see` with the number, the bucket and the hashes of each entry, and of those that come
    /// or go. The number of a key in a table is its fingerprint.
    fn each_entry(&self, mut see: impl FnMut(u64, FoundBucket<'_>, &[u32])) {
        match &self.store {
            Store::Map(buckets) => {
                let Some(map) = buckets.if_made() else { return };
                for (EntryKey { tag, .. }, bucket) in map.iter(&map.guard()) {
                    see(tag.packed(), FoundBucket::Map(bucket, Origin::Entry(tag.packed())), &[tag.hash]);
                }
            }
            Store::Table(table) => table.held().for_each(|(fingerprint, held)| {
                see(fingerprint, FoundBucket::in_table(held, fingerprint), &shared_hashes(fingerprint));
            }),
        }
    }

    /// Returns the bucket of all requests without a key, if a call has needed it.
    pub(crate) fn no_key(&self) -> State {
        self.parts_if_made().map_or(State::FULL, |parts| parts.overflow.no_key().state())
    }

    /// Restores the bucket of all requests without a key.
    pub(crate) fn resume_no_key(&self, state: State) {
        merge(&self.engine, self.parts().overflow.no_key(), state);
    }
}
