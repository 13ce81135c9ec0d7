//! The entries of a map that have one hash: a search without the key, for the ring's hand and for
//! receipts.
//!
//! papaya grows its table in steps. During a resize an entry may be in the old table, in the next
//! one, or in both. A lookup that matches a copied entry goes on in the next table. A lookup that
//! matches nothing ends at the first empty place.
//!
//! ```text
//!   old table     ... | key A, ticket 1, copied | empty | ...      A was removed in the next table
//!   next table    ... | removed | key A, ticket 9 | ...            and came back
//! ```
//!
//! A lookup that matched ticket 9 alone would pass ticket 1, and end in the old table at the empty
//! place. So a query of papaya must match all entries of one key, or none.
//!
//! *Invariant:* the search meets each entry that is live all the while, because a lookup matches
//! each entry of the hash that the search has not passed, and is so led to the next table wherever
//! papaya leads a lookup of that key. An entry is passed once it was found live, or once it led to
//! a table in which the lookup found nothing more. Neither is true of an earlier entry of the key,
//! while the key has the live one.
//!
//! Entries are told apart by address: papaya moves pointers, and frees no entry before the guard
//! is dropped. The key's own `Eq` is not called.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::ptr;

use equivalent::Equivalent;
use papaya::LocalGuard;

use crate::bucket::atomic::Bucket;
use crate::keyed::id::EntryId;
use crate::keyed::key::{EntryKey, Map};

/// A search for the entries of one hash: it returns each live one once.
pub(crate) struct SameHash<'g, K> {
    map: &'g Map<K>,
    guard: &'g LocalGuard<'g>,
    query: Unpassed,
}

/// A lookup of any entry of a hash, except those that were passed.
struct Unpassed {
    hash: u32,
    /// Addresses of the entries that were passed.
    passed: Vec<usize>,
    /// Address of the entry that was matched last; `NOTHING` if the lookup matched none.
    matched: Cell<usize>,
}

const NOTHING: usize = 0;

impl Unpassed {
    /// Passes the entry that was matched last. Returns false if there was none.
    fn pass(&mut self) -> bool {
        let matched = self.matched.replace(NOTHING);
        if matched == NOTHING {
            return false;
        }
        self.passed.push(matched);
        true
    }
}

impl Hash for Unpassed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.hash);
    }
}

impl<K> Equivalent<EntryKey<K>> for Unpassed {
    fn equivalent(&self, stored: &EntryKey<K>) -> bool {
        let address = ptr::from_ref(stored).addr();
        let matches = stored.tag.hash == self.hash && !self.passed.contains(&address);
        if matches {
            self.matched.set(address);
        }
        matches
    }
}

/// A stored key and its bucket.
pub(crate) type Entry<'g, K> = (&'g EntryKey<K>, &'g Bucket);

impl<'g, K: Eq> SameHash<'g, K> {
    pub(crate) fn new(map: &'g Map<K>, hash: u32, guard: &'g LocalGuard<'g>) -> Self {
        SameHash { map, guard, query: Unpassed { hash, passed: Vec::new(), matched: Cell::new(NOTHING) } }
    }

    /// Returns the live entry of an id.
    pub(crate) fn entry(map: &'g Map<K>, id: EntryId, guard: &'g LocalGuard<'g>) -> Option<Entry<'g, K>> {
        SameHash::new(map, id.hash, guard).find(|(stored, _)| stored.tag == id)
    }

    /// Removes an entry if its bucket `is_removable`.
    pub(crate) fn remove(
        map: &'g Map<K>,
        (entry, _): Entry<'g, K>,
        guard: &'g LocalGuard<'g>,
        is_removable: impl Fn(&Bucket) -> bool,
    ) {
        let is_it = |stored: &EntryKey<K>, bucket: &Bucket| ptr::eq(stored, entry) && is_removable(bucket);
        let mut query = SameHash::new(map, entry.tag.hash, guard).query;
        loop {
            let met_another = match map.remove_if(&query, &is_it, guard) {
                Ok(removed) => removed.is_none(),
                Err((stored, _)) => !ptr::eq(stored, entry),
            };
            if !met_another || !query.pass() {
                return;
            }
        }
    }
}

impl<'g, K: Eq> Iterator for SameHash<'g, K> {
    type Item = Entry<'g, K>;

    fn next(&mut self) -> Option<Entry<'g, K>> {
        loop {
            // Of the last lookup: the entry that it returned, or the last that led to a next table.
            self.query.pass();
            let found = self.map.get_key_value(&self.query, self.guard);
            if found.is_some() || self.query.matched.get() == NOTHING {
                return found;
            }
        }
    }
}
