// promise: one-bucket, bounded
//! Entries that are looked up by id while papaya moves them to another table, and while keys come
//! back under other tickets.

use tollgate_testing::size;

use crate::bucket::atomic::Bucket;
use crate::keyed::id::EntryId;
use crate::keyed::key::{EntryKey, KeyQuery, Map, PrehashedHasher};
use crate::keyed::same_hash::SameHash;

/// A map of keys that share their hashes with as many others as `alike` says.
struct World {
    map: Map<u64>,
    alike: u64,
    tickets: u32,
}

impl World {
    fn id(&mut self, key: u64) -> EntryId {
        self.tickets += 1;
        EntryId { hash: KeyQuery::of(key / self.alike, &key).hash(), ticket: self.tickets }
    }

    /// Inserts a key under a new ticket.
    fn insert(&mut self, key: u64) -> EntryId {
        let tag = self.id(key);
        assert!(self.map.pin().try_insert(EntryKey { tag, key }, Bucket::new()).is_ok());
        tag
    }

    /// Removes an entry, whose key comes back later.
    fn remove(&self, id: EntryId) {
        let guard = self.map.guard();
        let entry = SameHash::entry(&self.map, id, &guard).expect("it is there");
        let held = self.map.len();
        SameHash::remove(&self.map, entry, &guard, |_| false);
        assert_eq!(self.map.len(), held, "it may not be removed");
        SameHash::remove(&self.map, entry, &guard, |_| true);
        assert!(SameHash::entry(&self.map, id, &guard).is_none(), "it was removed");
        assert_eq!(self.map.len() + 1, held);
    }
}

#[test]
fn an_entry_is_found_by_its_id_whatever_papaya_moves() {
    for alike in [1, 2, 3] {
        let mut world = World { map: Map::with_hasher(PrehashedHasher::default()), alike, tickets: 0 };
        let (mut ids, mut missed, mut miscounted) = (Vec::new(), 0, 0);
        for key in 0..size(10_000, 100_000) / alike {
            ids.push(world.insert(key));
            let back = key / 2;
            world.remove(ids[back as usize]);
            ids[back as usize] = world.insert(back);
            let guard = world.map.guard();
            for near in (back.saturating_sub(2)..=back + 2).filter(|near| *near <= key) {
                let id = ids[near as usize];
                let found = SameHash::entry(&world.map, id, &guard);
                missed += u64::from(found.is_none_or(|(stored, _)| stored.key != near));
                let first = near / alike * alike;
                let others = (first..first + alike).filter(|other| *other <= key).count();
                miscounted += u64::from(SameHash::new(&world.map, id.hash, &guard).count() != others);
            }
        }
        assert_eq!((missed, miscounted), (0, 0), "missed and miscounted, {alike} of a hash");
    }
}
