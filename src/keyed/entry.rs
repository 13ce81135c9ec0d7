//! A key's place in the limiter's store: how it gets an entry, and what becomes of it if there is no room.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use papaya::LocalGuard;

use crate::bucket::atomic::{Bucket, Read};
use crate::bucket::engine::{Done, Place, is_removable};
use crate::keyed::id::Id;
use crate::keyed::id::Tag;
use crate::keyed::key::{Alike, ByKey, Stored, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::{Share, WhenFull};
use crate::keyed::ring::Look;
use crate::keyed::store::{Buckets, Found, Pin};
use crate::keyed::table::{Entered, Table};
use crate::sync::yield_now;
use crate::word::decision::Denied;
use crate::word::plan::Plan;
use crate::word::state::{Outcome, Spot, State};
use crate::word::terms::{MARGIN_NANOS, Pace, Reading};
use crate::word::verb::Step;

/// Keys of one hash that are held. papaya probes some 30 places at least and then moves to a larger table, for ever
/// if that does not spread the keys.
const MOST_ALIKE: usize = 8;

/// A key's place in the store.
pub(crate) struct Slot<'a, K, Q: ?Sized> {
    pub(crate) keyspace: &'a Keyspace<K>,
    pub(crate) pin: &'a Pin<'a, K>,
    pub(crate) key: ByKey<'a, Q>,
    /// What it shares while it has no entry.
    share: Share,
}

impl<K, Q: ?Sized> Slot<'_, K, Q> {
    /// The same place, for a call under a plan.
    pub(crate) fn under(self, plan: &Plan) -> Self {
        Slot { share: Share::of(Some(plan)), ..self }
    }
}

impl<K, Q: ?Sized> Clone for Slot<'_, K, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, Q: ?Sized> Copy for Slot<'_, K, Q> {}

impl<'a, K: Hash + Eq, Q: ToKey<K> + ?Sized> Place<'a> for Slot<'a, K, Q> {
    type Word = Found<'a>;

    fn search(self) -> Option<Found<'a>> {
        match self.pin {
            Pin::Map(buckets, guard) => buckets.map.get(&self.key, guard).map(Found::Boxed),
            Pin::Table(table) => table.search(self.key.full).map(Found::Inline),
        }
    }

    fn is_entered(self) -> bool {
        match self.pin {
            Pin::Map(..) => self.search().is_some(),
            Pin::Table(table) => table.is_entered(self.key.full),
        }
    }

    fn admit<P: Pace>(self, read: impl Read<Reading<P>>, step: impl Step) -> Option<Done<P>> {
        // A new reading: that of a reserved word is never one from before.
        let reading = read.read(State::FULL);
        if step.is_vain(&reading.pace) {
            return Some(Ok(self.keyspace.rules.peek(self, read, step)));
        }
        match self.pin {
            Pin::Map(buckets, guard) => self.enter_map(buckets, guard, read, step, reading),
            Pin::Table(table) => self.enter_table(table, read, step, reading),
        }
    }

    fn is_spread(self, bucket: &Bucket) -> bool {
        let Some(hot) = &self.keyspace.hot else { return false };
        let id = Id::of(bucket);
        let stays = hot.keeps(id);
        if stays {
            // It is due, but for that.
            self.keyspace.fold_if_idle(hot, self.pin, hot.seat(id), self.keyspace.rules.clock.nanos());
        }
        stays
    }

    fn pause(self) {
        if let Pin::Table(_) = self.pin {
            yield_now();
        }
    }

    fn bury(self) {
        if let Pin::Map(Buckets { map, .. }, guard) = self.pin {
            let _ = map.remove_if(&self.key, |_, bucket| is_removable(bucket), guard);
        }
    }

    fn overflow(self) -> &'a Bucket {
        self.keyspace.shares.bucket(self.share, self.key.hash)
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized> Slot<'_, K, Q> {
    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn enter_map<P: Pace>(
        self,
        Buckets { map, ring }: &Buckets<K>,
        guard: &LocalGuard<'_>,
        read: impl Read<Reading<P>>,
        step: impl Step,
        reading: Reading<P>,
    ) -> Option<Done<P>> {
        let (keyspace, ByKey { hash, key, .. }) = (self.keyspace, self.key);
        let now = reading.nanos();
        if Alike::count(map, hash, guard) >= MOST_ALIKE {
            // Until one of them has been forgotten.
            return self.without_room(read, step, reading, Some(now.saturating_add(MARGIN_NANOS)));
        }
        // Evicts the entry of a tag, if it is still there and may be evicted.
        let look = |tag: Tag| {
            let Some(bucket) = map.get(&tag, guard) else { return Look::Gone };
            match keyspace.seal_if_idle(bucket, now) {
                Ok(sealed) => {
                    keyspace.counters.evicted.fetch_add(u64::from(sealed), Ordering::Relaxed);
                    let _ = map.remove_if(&tag, |_, bucket| is_removable(bucket), guard);
                    Look::Gone
                }
                Err(due) => Look::Stays { due },
            }
        };
        let mut ticket = match ring.admit(now, look) {
            Ok(ticket) => ticket,
            Err(due) => return self.without_room(read, step, reading, due),
        };
        let key = key.to_key();
        let stored = Stored { tag: ticket.admits(hash), key };
        // Somebody else may have inserted the key. Then the ticket is found to be nobody's by the next who needs it.
        let bucket = map.try_insert(stored, Bucket::new(), guard).ok()?;
        // While the ticket is held, the hand passes by.
        let done = match &keyspace.hot {
            None => keyspace.rules.first_charge(bucket, self.overflow(), read, step),
            // Others may have charged it meanwhile, and often.
            Some(hot) => {
                keyspace.rules.first_charge(hot.whole(bucket, Id::of(bucket)), self.overflow(), read, step)
            }
        };
        done.map(Ok)
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn enter_table<P: Pace>(
        self,
        table: &Table,
        read: impl Read<Reading<P>>,
        step: impl Step,
        reading: Reading<P>,
    ) -> Option<Done<P>> {
        match table.insert(&self.keyspace.rules, self, self.key.full, read, step) {
            Entered::Decided(done) => Some(Ok(done)),
            Entered::Already => None,
            Entered::NoRoom { due } => self.without_room(read, step, reading, Some(due)),
        }
    }

    fn without_room<P: Pace>(
        self,
        read: impl Read<Reading<P>>,
        step: impl Step,
        reading: Reading<P>,
        due: Option<u64>,
    ) -> Option<Done<P>> {
        // Whoever took the last room may have done so for this very key.
        if self.search().is_some() {
            return None;
        }
        let keyspace = self.keyspace;
        match keyspace.when_full {
            WhenFull::Share if self.share != Share::None => {
                let (outcome, reading) = keyspace.rules.acquire_overflow(self, read, step)?;
                keyspace.counters.shared.fetch_add(1, Ordering::Relaxed);
                Some(Ok((Outcome { spot: Spot::Overflow(self.key.hash), ..outcome }, reading)))
            }
            WhenFull::Share | WhenFull::Deny => {
                keyspace.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(step.most(), reading.nanos(), due)))
            }
            WhenFull::Allow => {
                keyspace.counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                let (pace, terms) = (&reading.pace, reading.pace.terms());
                let taken = terms.units(step.most()).min(pace.capacity() - terms.floor);
                let level = pace.capacity() - taken;
                let outcome = Outcome { granted: true, taken, level, lag: 0, spot: Spot::Nowhere };
                Some(Ok((outcome, reading)))
            }
        }
    }
}

impl<K: Hash + Eq> Keyspace<K> {
    #[inline]
    pub(crate) fn place<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        pin: &'a Pin<'a, K>,
        key: ByKey<'a, Q>,
    ) -> Slot<'a, K, Q> {
        Slot { keyspace: self, pin, key, share: Share::Own }
    }
}
