//! When a key is spread, and when it is no more.

use std::hash::{BuildHasher, Hash};

use super::registry::{Hot, Life};
use super::seats::{Id, Seat};
use crate::bucket::{Bucket, Word};
use crate::key::ToKey;
use crate::shared::{Pin, Shared};
use crate::slot::{Found, Slot};
use crate::state::State;

/// What a seat is looked at for: once in so many nanoseconds, as a power of two, it is another's turn.
const TURN: u32 = 20;

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    #[cold]
    pub(super) fn note_lost<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, S, Q>,
        found: Found<'_>,
        now: u64,
    ) {
        let id = found.id();
        let seat = hot.seats.of(id);
        // Spread before it is charged, it would be neither.
        if !seat.note_lost(id, now) || !found.state().is_level() {
            return;
        }
        self.fold_if_idle(hot, place.pin, seat, now);
        match (place.pin, found) {
            (Pin::Map(buckets, guard), Found::Boxed(bucket)) => {
                let stored = buckets.map.get_key_value(&place.key, guard);
                if let Some((stored, _)) = stored.filter(|(_, now)| std::ptr::eq(*now, bucket)) {
                    hot.promote(id, Some(stored.tag), now, || bucket.state() == State::SEALED);
                }
            }
            _ => hot.promote(id, None, now, || false),
        }
    }

    /// Spreads a found bucket no more, if it was.
    pub(super) fn fold(&self, hot: &Hot, found: Found<'_>) {
        let pin = hot.pin();
        if let Some(life) = hot.find(found.id(), &pin) {
            hot.fold(found, life, &self.rules);
        }
    }

    /// As [`fold`](Shared::fold): what is to be run on the bucket comes after it.
    pub(super) fn fold_life<T>(&self, hot: &Hot, found: Found<'_>, life: &Life) -> Option<T> {
        hot.fold(found, life, &self.rules);
        None
    }

    /// Looks at a seat, each time at the next.
    #[inline]
    pub(super) fn fold_in_turn(&self, hot: &Hot, pin: &Pin<'_, K>, now: u64) {
        let seat = hot.seats.at(now >> TURN);
        if seat.life().is_some() {
            self.fold_if_idle(hot, pin, seat, now);
        }
    }
}

impl<K: Eq, S> Shared<K, S> {
    /// A bucket was sealed by this call, which keeps its place from others.
    pub(crate) fn sealed(&self, bucket: &Bucket) {
        if let Some(hot) = &self.hot {
            hot.forget(Id::of(bucket));
        }
    }

    /// Spreads the key of a seat no more if it has been idle.
    #[cold]
    pub(crate) fn fold_if_idle(&self, hot: &Hot, pin: &Pin<'_, K>, seat: &Seat, now: u64) {
        let Some(number) = seat.life() else { return };
        let hot_pin = hot.pin();
        let Some(life) = hot.get(number, &hot_pin).filter(|life| life.is_idle(now)) else { return };
        match bucket_of(pin, life) {
            Some(found) => drop(hot.fold(found, life, &self.rules)),
            None => hot.drop_unused(life),
        }
    }

    /// Spreads no more what has been idle.
    pub(crate) fn fold_idle(&self) {
        if let Some(hot) = &self.hot {
            let (pin, now) = (self.store.pin(), self.rules.clock.nanos());
            hot.seats.all().for_each(|seat| self.fold_if_idle(hot, &pin, seat, now));
        }
    }

    /// After a change of quota: what has no room under the new one is gone.
    pub(crate) fn gather_after_a_change(&self) {
        let Some(hot) = &self.hot else { return };
        let (pin, hot_pin) = (self.store.pin(), hot.pin());
        for seat in hot.seats.all() {
            if let Some(life) = seat.latest().and_then(|number| hot.get(number, &hot_pin))
                && let Some(found) = bucket_of(&pin, life)
            {
                life.spread.gather_after_a_change(hot.central(found, life, &self.rules));
            }
        }
    }
}

/// The bucket that is spread so, unless it is just being removed, or its slot is another key's.
fn bucket_of<'a, K: Eq>(pin: &'a Pin<'_, K>, life: &Life) -> Option<Found<'a>> {
    let found = match pin {
        Pin::Map(buckets, guard) => buckets.map.get(&life.tag?, guard).map(Found::Boxed),
        Pin::Table(table) => table.held_at(life.id.address).map(Found::Inline),
    };
    found.filter(|found| found.id() == life.id)
}
