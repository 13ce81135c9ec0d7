//! Refusals of a fixed table that is not yet full: a key may be in two of its sets only.

use foldhash::fast::FixedState;
use tollgate::{Quota, RateLimiter, WhenFull};

use super::effort::{Effort, say};
use crate::results::Room;

/// Keys that a table is made for: 6 for each of its 131,072 sets.
const KEYS: usize = 6 << 17;
/// Slots of a table: 8 for each set, as in the documentation of the store.
const SLOTS: usize = 8 << 17;

/// Parts of the slots, in hundredths. A table is made for 75.
const LOADS: [usize; 3] = [60, 75, 90];

/// Fills tables with new keys, which each take their only token of the hour, so that none is ever
/// idle.
///
/// A key without room is denied, and counted. Each table has a hash of its own, the same in every
/// run.
pub fn rooms(effort: &Effort) -> Vec<Room> {
    say("room in tables that fill up");
    let empty = Room { slots: SLOTS, tables: effort.tables, ..Room::default() };
    let mut rooms = LOADS.map(|load| Room { load: load as f64 / 100.0, ..empty });
    for seed in 0..effort.tables as u64 {
        let builder = RateLimiter::<u64>::builder(Quota::per_hour(1));
        let builder = builder
            .hasher(FixedState::with_seed(seed))
            .max_keys(KEYS)
            .inline()
            .unwrap()
            .when_full(WhenFull::Deny);
        let limiter = builder.build();
        let (mut newcomers, mut granted) = (0.., 0);
        // New keys, and the refused of them, until that part of the slots hold keys.
        let mut fill = |hundredths: usize| {
            while limiter.len() * 100 < SLOTS * hundredths {
                let key = newcomers.next().expect("numbers do not end");
                granted += u64::from(limiter.try_acquire(&key).is_ok());
            }
            let (asked, refused) = (newcomers.start, limiter.stats().refused_full);
            assert_eq!(granted + refused, asked, "a refused key found no room");
            (asked, refused)
        };
        for (room, load) in rooms.iter_mut().zip(LOADS) {
            let (before, all) = (fill(load - 1), fill(load));
            room.inserts += all.0;
            room.refused += all.1;
            room.last_inserts += all.0 - before.0;
            room.last_refused += all.1 - before.1;
        }
    }
    rooms.to_vec()
}
