//! The slots of a limiter, by their keys.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use papaya::{Compute, HashMap, Operation};
use tollgate::Equivalent;

use super::slot::Slot;
use super::slot::key_state::KeyState;

/// A borrowed form of a key of [`Slots`], to look it up; `None` is that of requests without a key.
pub(crate) struct Lookup<'a, Q: ?Sized>(pub(crate) Option<&'a Q>);

impl<Q: Hash + ?Sized> Hash for Lookup<'_, Q> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<K, Q: Equivalent<K> + ?Sized> Equivalent<Option<K>> for Lookup<'_, Q> {
    fn equivalent(&self, key: &Option<K>) -> bool {
        match (self.0, key) {
            (Some(own), Some(key)) => own.equivalent(key),
            (own, key) => own.is_none() && key.is_none(),
        }
    }
}

/// The keys of this process: those with a slot, and those whose silent buckets are not full.
pub(crate) struct Slots<K> {
    pub(crate) map: HashMap<K, Arc<Slot>>,
    /// Keys without a slot, with the times at which their buckets are full. A full bucket is that
    /// of a key that is not known.
    silent: HashMap<K, (Arc<KeyState>, u64)>,
    /// The most slots, and the most silent keys.
    pub(crate) max_keys: usize,
}

impl<K: Hash + Eq + Clone> Slots<K> {
    pub(crate) fn new(max_keys: usize) -> Slots<K> {
        Slots { map: HashMap::new(), silent: HashMap::new(), max_keys }
    }

    /// Returns the state of a silent key.
    pub(crate) fn silent<Q: Equivalent<K> + Hash + ?Sized>(&self, key: &Q) -> Option<Arc<KeyState>> {
        self.silent.pin().get(key).map(|(state, _)| state.clone())
    }

    /// Notes tokens that went back to the store: this process asks it for them.
    pub(crate) fn put_back<Q: Equivalent<K> + Hash + ?Sized>(&self, key: &Q, n: u64) {
        self.map.pin().get(key).iter().for_each(|slot| slot.key.put(n));
        self.silent(key).iter().for_each(|state| state.put(n));
    }

    /// Adds a slot of a key that has none. It has the state of the silent key.
    pub(crate) fn add(&self, key: K, slot: Slot) {
        self.map.pin().get_or_insert(key.clone(), Arc::new(slot));
        self.silent.pin().remove(&key);
    }

    /// Puts another slot in the place of this one. Returns whether it was still there.
    pub(crate) fn replace(&self, key: K, slot: &Arc<Slot>, by: Slot) -> bool {
        let by = Arc::new(by);
        let map = self.map.pin();
        let replaced = map.compute(key, |found| match found {
            Some((_, found)) if Arc::ptr_eq(found, slot) => Operation::Insert(by.clone()),
            _ => Operation::Abort(()),
        });
        matches!(replaced, Compute::Updated { .. })
    }

    /// Removes an idle slot, but no later slot of the key. Returns whether it was still there. A
    /// bucket that is not full stays known, if there is room.
    pub(crate) fn silence(&self, key: &K, slot: &Arc<Slot>) -> bool {
        let (silent, now) = (self.silent.pin(), slot.lease.now());
        let full_at = slot.key.full_at(&slot.terms, now);
        if full_at > now && silent.len() < self.max_keys {
            silent.insert(key.clone(), (slot.key.clone(), full_at));
        }
        matches!(self.map.pin().remove_if(key, |_, found| Arc::ptr_eq(found, slot)), Ok(Some(_)))
    }

    /// Forgets the silent keys whose buckets are full.
    pub(crate) fn forget(&self, now: u64) {
        self.silent.pin().retain(|_, (_, full_at)| *full_at > now);
    }
}
