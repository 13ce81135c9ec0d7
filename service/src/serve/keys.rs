//! The keys of all tables: where a key is counted, and when it is forgotten.

use std::sync::{Arc, PoisonError};

use super::counts::{LimitCounts, Verb};
use super::homes::{Home, LimitState};
use super::limiters::{CountKey, Hits};
use super::loaded::Counter;
use tollgate_common::past::{CountTable, charge};

/// The key under which a count is held, and how it came there.
pub(super) struct HeldKey {
    pub(super) key: CountKey,
    arrival: Arrival,
}

enum Arrival {
    /// The room was not tight: the call did not look whether the key is known.
    Free,
    /// The key is new, and took a slot.
    Taken,
    /// The key is known, or shares a count.
    Known,
}

impl LimitCounts {
    /// Returns the key of the count that a key has: its own, if it has a slot.
    #[inline]
    pub(super) fn key_of(&self, counter: &Counter, state: &LimitState, key: CountKey, verb: Verb) -> HeldKey {
        match state.past.is_live() || state.share.is_shared() || self.room.is_tight() {
            true => self.find_place(counter, state, key, verb),
            false => HeldKey { key, arrival: Arrival::Free },
        }
    }

    /// Charges a key with its use where a reload has left it. A new key looks for a slot.
    #[cold]
    fn find_place(&self, counter: &Counter, state: &LimitState, key: CountKey, verb: Verb) -> HeldKey {
        let Some(home) = self.home(counter) else { return HeldKey { key, arrival: Arrival::Known } };
        state.past.carry(&key, &home, &self.moves);
        let (room, share) = (&self.room, &state.share);
        let may_be_new = room.is_tight() || share.is_shared();
        if !may_be_new {
            return HeldKey { key, arrival: Arrival::Free };
        }
        if verb == Verb::GiveBack || home.holds(&key) {
            return HeldKey { key, arrival: Arrival::Known };
        }
        let (shared_key, adds) = (room.shared_key(share, key), verb.adds());
        if room.take(share, adds) {
            // A key that has shared a count does not begin anew.
            if share.is_shared() && adds {
                charge(&home, &key, home.use_of(&shared_key));
            }
            return HeldKey { key, arrival: if adds { Arrival::Taken } else { Arrival::Known } };
        }
        if adds {
            room.share(share, self.nanos().saturating_add(longest(&home)));
        }
        HeldKey { key: shared_key, arrival: Arrival::Known }
    }

    /// Counts a key that has used its first hits.
    #[inline]
    pub(super) fn begin(&self, hits: Hits, placed: &HeldKey, verb: Verb) {
        match placed.arrival {
            Arrival::Free if hits.before == 0 && verb.adds() && self.room.begin(placed.key) => {
                self.count_keys();
            }
            Arrival::Taken => self.room.arrive(),
            _ => {}
        }
    }

    /// Sets the number of keys to that of all tables.
    #[cold]
    fn count_keys(&self) {
        self.room.count(|| {
            let of_units = self.units.iter().map(|windows| windows.keys.len()).sum::<usize>();
            let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
            of_units + texts.values().map(|limiter| limiter.table.stats().keys).sum::<usize>()
        });
    }

    /// Sweeps at once if there is little room.
    pub fn sweep_if_tight(&self) {
        if self.room.is_tight() {
            self.sweep();
        }
    }

    /// Forgets the keys that have used nothing, and the limiters of texts that no rule has.
    pub(crate) fn sweep(&self) {
        for windows in &self.units {
            windows.keys.evict_idle();
        }
        self.all_texts().values().for_each(|limiter| limiter.table.sweep());
        let mut paths = self.limit_paths();
        paths.forget_over();
        let is_tight = self.room.is_tight();
        let now = self.nanos();
        paths.each(|home, state| state.share.turn(now, longest(home), is_tight));
        self.overrides.share.turn(now, 0, is_tight);
        drop(paths);
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        // A rule, a path or a request has the others.
        texts.retain(|_, limiter| Arc::strong_count(limiter) > 1 || limiter.table.stats().keys > 0);
        drop(texts);
        self.count_keys();
    }
}

/// Returns the nanoseconds for which a use counts.
fn longest(home: &Home) -> u64 {
    u64::try_from(home.longest_use().as_nanos()).unwrap_or(u64::MAX)
}
