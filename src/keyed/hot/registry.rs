//! Which keys are spread: from when they are to when they are no more.

use super::seats::{Seat, Seats, Time};
use super::watched::Watched;
use crate::bucket::atomic::Word;
use crate::bucket::engine::Rules;
use crate::bucket::lease::Spread;
use crate::bucket::live_terms::Source;
use crate::fault::{Control, broken};
use crate::keyed::id::Id;
use crate::keyed::id::Tag;
use crate::sync::{Ordering, fence};

/// The keys that are spread.
#[derive(Debug)]
pub(crate) struct Hot {
    pub(crate) seats: Seats,
}

/// A bucket as it was found.
pub(crate) enum As<'a, W, R> {
    /// Spread over cells.
    Spread(Spread<'a, Watched<'a, W>, R>),
    Whole(Watched<'a, W>),
}

impl Hot {
    pub(crate) fn new() -> Hot {
        Hot { seats: Seats::new() }
    }

    /// Whether a bucket is spread, or just about to be, and so not to be evicted. To be asked after its word was loaded.
    pub(crate) fn keeps(&self, id: Id) -> bool {
        self.seat(id).time_of(id).is_some() && !broken(Control::SpreadEvicted)
    }

    /// Where a bucket would be.
    #[inline]
    pub(crate) fn seat(&self, id: Id) -> &Seat {
        self.seats.of(id)
    }

    /// A bucket as it is now. Nothing if that changes meanwhile.
    #[inline]
    pub(crate) fn found<'a, W: Word, R: Source>(
        &'a self,
        word: W,
        id: Id,
        rules: &'a Rules<R>,
    ) -> Option<As<'a, W, R>> {
        let seat = self.seat(id);
        let Some(time) = seat.time_of(id) else { return Some(As::Whole(self.whole(word, id))) };
        let (occupant, _) = seat.occupant(time)?;
        if occupant == id || broken(Control::OthersCells) {
            return Some(As::Spread(self.spread(word, id, time, rules)));
        }
        // They are of the key that had the slot before: nobody's.
        seat.drop_unused(time);
        None
    }

    /// A word while it is not spread.
    #[inline]
    pub(crate) fn whole<W>(&self, word: W, id: Id) -> Watched<'_, W> {
        Watched { word, seat: self.seat(id), id, time: None }
    }

    /// A word while it is spread so.
    pub(crate) fn spread<'a, W: Word, R: Source>(
        &'a self,
        word: W,
        id: Id,
        time: Time,
        rules: &'a Rules<R>,
    ) -> Spread<'a, Watched<'a, W>, R> {
        let seat = self.seat(id);
        let bucket = Watched { word, seat, id, time: Some(time) };
        Spread { bucket, rules, cells: &seat.cells, life: time.life() }
    }

    /// Seals a bucket of a map that has been full for the margin. As [`Rules::seal_if_idle`], but one that is spread stays: then it
    /// is neither sealed by this call nor was it before.
    pub(crate) fn seal_if_idle<W: Word, R: Source>(
        &self,
        word: W,
        id: Id,
        rules: &Rules<R>,
    ) -> Result<bool, u64> {
        if broken(Control::SpreadEvicted) {
            return rules.seal_if_idle(word);
        }
        let sealed = rules.seal_if_idle(self.whole(word, id))?;
        if sealed {
            // It may have been spread just before the seal, and has no leases then.
            self.forget(id);
        }
        Ok(sealed)
    }

    /// Spreads a bucket, if its seat is free. `sealed` tells whether it has been sealed for good.
    #[cold]
    pub(crate) fn promote(&self, id: Id, tag: Tag, now: u64, sealed: impl Fn() -> bool) {
        let seat = self.seat(id);
        let Some(time) = seat.give(id, tag, now) else { return };
        fence(Ordering::SeqCst);
        if sealed() && !broken(Control::GhostSpread) {
            seat.leave(time);
        }
    }

    /// The bucket was sealed: whatever is leased of it dies with it. While the caller keeps others from its place.
    ///
    /// Who has found the cells may still take of them, as if before the seal.
    #[cold]
    pub(crate) fn forget(&self, id: Id) {
        if broken(Control::LeasesInherited) {
            return;
        }
        fence(Ordering::SeqCst);
        let seat = self.seat(id);
        while let Some(time) = seat.time_of(id) {
            seat.leave(time);
        }
    }

    /// Spreads a bucket no more: what is at hand in its cells goes back to the word. Nothing comes of it if somebody else keeps a
    /// cell.
    #[cold]
    pub(crate) fn fold<W: Word, R: Source>(&self, spread: Spread<'_, Watched<'_, W>, R>) {
        if spread.close() {
            spread.bucket.leave();
        }
    }

    /// Keys that are spread now.
    pub(crate) fn len(&self) -> usize {
        self.seats.all().filter(|seat| seat.time().is_some()).count()
    }
}
