//! The keys that are refused most, in a sketch of bounded size.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError, TryLockError};

const SETS: usize = 64;
const WAYS: usize = 8;

/// Keys with their numbers of refusals, by Space-Saving in each of some sets (Metwally et al.,
/// 2005, <https://doi.org/10.1007/978-3-540-30570-5_27>).
///
/// A key with more than an eighth of its set's counted refusals is present. Its count may be too
/// high, by at most the count of the key that it replaced.
pub(crate) struct TopKeys<K> {
    sets: Box<[Mutex<RefusalCounts<K>>]>,
    hasher: RandomState,
}

type RefusalCounts<K> = Vec<(K, u64)>;

impl<K: Hash + Eq + Clone> TopKeys<K> {
    pub(crate) fn new() -> TopKeys<K> {
        TopKeys { sets: (0..SETS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Counts a refusal, or drops it while another thread is at the set: no thread waits.
    pub(crate) fn note(&self, key: &K) {
        let set = &self.sets[self.hasher.hash_one(key) as usize % SETS];
        let mut keys = match set.try_lock() {
            Ok(keys) => keys,
            Err(TryLockError::Poisoned(keys)) => keys.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Some((_, count)) = keys.iter_mut().find(|(known, _)| known == key) {
            *count += 1;
        } else if keys.len() < WAYS {
            keys.push((key.clone(), 1));
        } else if let Some(least) = keys.iter_mut().min_by_key(|(_, count)| *count) {
            *least = (key.clone(), least.1 + 1);
        }
    }

    /// Returns up to `n` keys, the most refused first.
    pub(crate) fn most(&self, n: usize) -> Vec<(K, u64)> {
        let of = |set: &Mutex<RefusalCounts<K>>| set.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut keys: Vec<_> = self.sets.iter().flat_map(of).collect();
        keys.sort_by(|(_, one), (_, other)| other.cmp(one));
        keys.truncate(n);
        keys
    }
}
