//! When a key is spread no more.

use crate::bucket::atomic::Bucket;
use crate::keyed::hot::{As, Hot, Seat};
use crate::keyed::id::{Id, Tag};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::store::{Found, Pin};
use crate::word::state::State;

/// What a seat is looked at for: once in so many nanoseconds, as a power of two, it is another's turn.
const TURN: u32 = 20;

impl<K: Eq> Keyspace<K> {
    /// Looks at a seat, each time at the next.
    #[inline]
    pub(crate) fn fold_in_turn(&self, hot: &Hot, pin: &Pin<'_, K>, now: u64) {
        let seat = hot.seats.at(now >> TURN);
        if seat.time().is_some() {
            self.fold_if_idle(hot, pin, seat, now);
        }
    }

    /// Spreads a found bucket no more, if it was.
    pub(crate) fn fold(&self, hot: &Hot, found: Found<'_>) {
        if let Some(As::Spread(spread)) = hot.found(found, found.id(), &self.rules) {
            hot.fold(spread);
        }
    }

    /// A bucket was sealed by this call, which keeps its place from others.
    pub(crate) fn sealed(&self, bucket: &Bucket) {
        if let Some(hot) = &self.hot {
            hot.forget(Id::of(bucket));
        }
    }

    /// Spreads the key of a seat no more if it has been idle.
    #[cold]
    pub(crate) fn fold_if_idle(&self, hot: &Hot, pin: &Pin<'_, K>, seat: &Seat, now: u64) {
        let Some(time) = seat.time().filter(|_| seat.is_idle(now)) else { return };
        let Some((id, tag)) = seat.occupant(time) else { return };
        match bucket_of(pin, id, tag) {
            Some(found) => hot.fold(hot.spread(found, id, time, &self.rules)),
            // It is being removed, or its slot is another key's: then nothing is leased of it.
            None => seat.drop_unused(time),
        }
    }

    /// Spreads no more what has been idle.
    pub(crate) fn fold_idle(&self) {
        if let Some(hot) = &self.hot {
            let (pin, now) = (self.store.pin(), self.rules.clock.nanos());
            hot.seats.all().for_each(|seat| self.fold_if_idle(hot, &pin, seat, now));
        }
    }

    /// Seals a bucket of a map that has been full for the margin, unless it is spread; else tells the clock reading at which it may be.
    pub(crate) fn seal_if_idle(&self, bucket: &Bucket, now: u64) -> Result<bool, u64> {
        let Some(hot) = &self.hot else { return self.rules.seal_if_idle(bucket) };
        let id = Id::of(bucket);
        let sealed = hot.seal_if_idle(bucket, id, &self.rules)?;
        if !sealed && bucket.state() != State::SEALED {
            self.fold_if_idle(hot, &self.store.pin(), hot.seat(id), self.rules.clock.nanos());
            return Err(now);
        }
        Ok(sealed)
    }

    /// After a change to a lower burst: leased tokens that have no room under it are gone.
    pub(crate) fn gather_after_a_lower_burst(&self) {
        let Some(hot) = &self.hot else { return };
        let pin = self.store.pin();
        for seat in hot.seats.all() {
            if let Some(time) = seat.latest()
                && let Some((id, tag)) = seat.occupant(time)
                && let Some(found) = bucket_of(&pin, id, tag)
            {
                hot.spread(found, id, time, &self.rules).gather_after_a_lower_burst();
            }
        }
    }
}

/// The bucket that is spread so, unless it is just being removed, or its slot is another key's.
fn bucket_of<'a, K: Eq>(pin: &'a Pin<'_, K>, id: Id, tag: Tag) -> Option<Found<'a>> {
    let found = match pin {
        Pin::Map(buckets, guard) => buckets.map.get(&tag, guard).map(Found::Boxed),
        Pin::Table(table) => table.held_at(id.address).map(Found::Inline),
    };
    found.filter(|found| found.id() == id)
}
