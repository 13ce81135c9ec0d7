//! A key's place in papaya's map: how it gets an entry, and what becomes of it if there is no room.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use papaya::LocalGuard;

use crate::bucket::{Bucket, Read};
use crate::builder::WhenFull;
use crate::decision::Denied;
use crate::entry::{Done, Place, is_removable};
use crate::eviction::Look;
use crate::key::{Alike, ByKey, Stored, Tag, ToKey};
use crate::plan::Plan;
use crate::shared::Shared;
use crate::shares::Share;
use crate::state::{Outcome, Spot, State};
use crate::step::Step;
use crate::terms::{MARGIN_NANOS, Pace, Reading};

/// Keys of one hash that are held. papaya probes some 30 places at least and then moves to a larger table, for ever
/// if that does not spread the keys.
const MOST_ALIKE: usize = 8;

/// A key's place in papaya's map.
pub(crate) struct Slot<'a, K, S, Q: ?Sized> {
    pub(crate) shared: &'a Shared<K, S>,
    pub(crate) guard: &'a LocalGuard<'a>,
    pub(crate) key: ByKey<'a, Q>,
    /// What it shares while it has no entry.
    share: Share,
}

impl<K, S, Q: ?Sized> Slot<'_, K, S, Q> {
    /// The same place, for a call under a plan.
    pub(crate) fn under(self, plan: &Plan) -> Self {
        Slot { share: plan.share, ..self }
    }
}

impl<K, S, Q: ?Sized> Clone for Slot<'_, K, S, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, S, Q: ?Sized> Copy for Slot<'_, K, S, Q> {}

impl<'a, K: Hash + Eq, S: BuildHasher, Q: ToKey<K> + ?Sized> Place<'a> for Slot<'a, K, S, Q> {
    #[inline(always)]
    fn find(self) -> Option<&'a Bucket> {
        self.shared.map.get(&self.key, self.guard)
    }

    fn admit<P: Pace>(self, read: impl Read<Reading<P>>, step: impl Step) -> Option<Done<P>> {
        self.shared.admit(self, read, step)
    }

    fn bury(self) {
        let map = &self.shared.map;
        let _ = map.remove_if(&self.key, |_, bucket| is_removable(bucket), self.guard);
    }

    fn overflow(self) -> &'a Bucket {
        self.shared.shares.bucket(self.share, self.key.hash)
    }
}

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    #[inline]
    pub(crate) fn place<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        guard: &'a LocalGuard<'a>,
        key: &'a Q,
    ) -> Slot<'a, K, S, Q> {
        self.place_of(guard, ByKey::new(&self.hasher, key))
    }

    #[inline]
    pub(crate) fn place_of<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        guard: &'a LocalGuard<'a>,
        key: ByKey<'a, Q>,
    ) -> Slot<'a, K, S, Q> {
        Slot { shared: self, guard, key, share: Share::Own }
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn admit<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Option<Done<P>> {
        let ByKey { hash, key } = place.key;
        // A new reading: that of a reserved word is never one from before.
        let reading = read.read(State::FULL);
        if step.is_vain(&reading.pace) {
            return Some(Ok(self.rules.peek(place, read, step)));
        }
        let now = reading.nanos();
        // Whoever took the last room may have done so for this very key.
        let no_room = |due| match place.find() {
            Some(_) => None,
            None => self.without_room(place, read, step, reading, due),
        };
        if Alike::count(&self.map, hash, place.guard) >= MOST_ALIKE {
            // Until one of them has been forgotten.
            return no_room(Some(now.saturating_add(MARGIN_NANOS)));
        }
        let mut ticket = match self.ring.admit(now, |tag| self.look(place.guard, tag)) {
            Ok(ticket) => ticket,
            Err(due) => return no_room(due),
        };
        let key = key.to_key();
        let stored = Stored { tag: ticket.admits(hash), key };
        // Somebody else may have inserted the key. Then the ticket is found to be nobody's by the next who needs it.
        let bucket = self.map.try_insert(stored, Bucket::new(), place.guard).ok()?;
        // While the ticket is held, the hand passes by.
        self.rules.first_charge(bucket, place.overflow(), read, step).map(Ok)
    }

    fn without_room<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
        reading: Reading<P>,
        due: Option<u64>,
    ) -> Option<Done<P>> {
        match self.when_full {
            WhenFull::Share if place.share != Share::None => {
                let (outcome, reading) = self.rules.acquire_overflow(place, read, step)?;
                self.counters.shared.fetch_add(1, Ordering::Relaxed);
                Some(Ok((Outcome { spot: Spot::Overflow(place.key.hash), ..outcome }, reading)))
            }
            WhenFull::Share | WhenFull::Deny => {
                self.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(step.most(), reading.nanos(), due)))
            }
            WhenFull::Allow => {
                self.counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                let (pace, terms) = (&reading.pace, reading.pace.terms());
                let taken = terms.units(step.most()).min(pace.capacity() - terms.floor);
                let level = pace.capacity() - taken;
                let outcome = Outcome { granted: true, taken, level, lag: 0, spot: Spot::Nowhere };
                Some(Ok((outcome, reading)))
            }
        }
    }

    /// Evicts the entry of this tag, if it is still there and may be evicted.
    fn look(&self, guard: &LocalGuard<'_>, tag: Tag) -> Look {
        let Some(bucket) = self.map.get(&tag, guard) else { return Look::Gone };
        match self.rules.seal_if_idle(bucket) {
            Ok(sealed) => {
                self.counters.evicted.fetch_add(u64::from(sealed), Ordering::Relaxed);
                let _ = self.map.remove_if(&tag, |_, bucket| is_removable(bucket), guard);
                Look::Gone
            }
            Err(due) => Look::Stays { due },
        }
    }
}
