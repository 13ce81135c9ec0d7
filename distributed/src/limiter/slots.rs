//! The slots of a limiter, by their keys.

use std::collections::hash_map::RandomState;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use papaya::{HashMapRef, LocalGuard};
use tollgate::Equivalent;

use super::slot::Slot;

/// The key of a slot; `Keyless` is that of all requests without a key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SlotKey<K> {
    Of(K),
    Keyless,
}

/// A borrowed form of a [`SlotKey`], to look it up.
pub(crate) struct Lookup<'a, Q: ?Sized>(pub(crate) Option<&'a Q>);

impl<K: Hash> Hash for SlotKey<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            SlotKey::Of(key) => Lookup(Some(key)).hash(state),
            SlotKey::Keyless => Lookup::<K>(None).hash(state),
        }
    }
}

impl<Q: Hash + ?Sized> Hash for Lookup<'_, Q> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Some(key) => key.hash(state),
            None => state.write_u8(0),
        }
    }
}

impl<K, Q: Equivalent<K> + ?Sized> Equivalent<SlotKey<K>> for Lookup<'_, Q> {
    fn equivalent(&self, key: &SlotKey<K>) -> bool {
        match (self.0, key) {
            (Some(own), SlotKey::Of(key)) => own.equivalent(key),
            (None, SlotKey::Keyless) => true,
            _ => false,
        }
    }
}

/// Removes this slot of a key from the map, but no later slot of the key.
pub(crate) fn remove<K: Hash + Eq, Q: Equivalent<K> + Hash + ?Sized>(
    slots: &HashMapRef<'_, K, Arc<Slot>, RandomState, LocalGuard<'_>>,
    key: &Q,
    slot: &Arc<Slot>,
) -> bool {
    matches!(slots.remove_if(key, |_, found| Arc::ptr_eq(found, slot)), Ok(Some(_)))
}
