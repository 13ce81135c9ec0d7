//! The cells of the keys that are spread, from when they are to when they are no more.

use papaya::LocalGuard;

use super::seats::{Id, Seat, Seats};
use super::watched::Watched;
use crate::bucket::Word;
use crate::control::{Control, broken};
use crate::entry::Rules;
use crate::key::Tag;
use crate::regime::Source;
use crate::spread::{Central, Spread};
use crate::sync::{AtomicU64, Ordering, fence};

/// A key that is not in demand for so long is spread no more, in nanoseconds.
const IDLE: u64 = 100_000_000;

/// One time that a key is spread.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) spread: Spread,
    pub(crate) id: Id,
    /// What its bucket is found by, in a map.
    pub(crate) tag: Option<Tag>,
    number: u64,
    since: u64,
}

impl Life {
    /// Whether its cells have not been in demand for long.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.since) > IDLE && self.spread.is_at_leisure(now, IDLE)
    }
}

/// Where the cells are kept: papaya's map, or a stand-in that a model checker can follow.
pub(crate) trait Shelf {
    type Pin<'a>
    where
        Self: 'a;
    fn pin(&self) -> Self::Pin<'_>;
    /// What is had stays, for as long as the pin.
    fn get<'a>(&'a self, number: u64, pin: &'a Self::Pin<'_>) -> Option<&'a Life>;
    fn put(&self, number: u64, life: Life);
    fn remove(&self, number: u64);
    fn spread(&self) -> Spread;
}

#[derive(Debug)]
pub(crate) struct Cells(papaya::HashMap<u64, Life>);

impl Shelf for Cells {
    type Pin<'a> = LocalGuard<'a>;

    fn pin(&self) -> LocalGuard<'_> {
        self.0.guard()
    }

    fn get<'a>(&'a self, number: u64, pin: &'a LocalGuard<'_>) -> Option<&'a Life> {
        self.0.get(&number, pin)
    }

    fn put(&self, number: u64, life: Life) {
        self.0.insert(number, life, &self.0.guard());
    }

    fn remove(&self, number: u64) {
        self.0.remove(&number, &self.0.guard());
    }

    fn spread(&self) -> Spread {
        Spread::over_cores()
    }
}

/// The keys that are spread.
#[derive(Debug)]
pub(crate) struct Hot<S = Cells> {
    pub(super) seats: Seats,
    /// Number of the last life, from 1 on.
    lives: AtomicU64,
    shelf: S,
}

impl Hot {
    pub(crate) fn new() -> Hot {
        Hot::on(Cells(papaya::HashMap::new()))
    }
}

impl<S: Shelf> Hot<S> {
    pub(crate) fn on(shelf: S) -> Hot<S> {
        Hot { seats: Seats::new(), lives: AtomicU64::new(0), shelf }
    }

    pub(crate) fn pin(&self) -> S::Pin<'_> {
        self.shelf.pin()
    }

    /// Whether a bucket is spread, or just about to be. To be asked after its word was loaded.
    #[inline]
    pub(crate) fn has(&self, id: Id) -> bool {
        self.seats.of(id).life_of(id).is_some()
    }

    /// Whether a bucket is not to be evicted, for that reason.
    pub(crate) fn keeps(&self, id: Id) -> bool {
        self.has(id) && !broken(Control::SpreadEvicted)
    }

    /// Where a bucket would be.
    pub(crate) fn seat(&self, id: Id) -> &Seat {
        self.seats.of(id)
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

    /// The cells of a bucket, if it is spread. Those of the key that had its slot before are nobody's: they go.
    pub(crate) fn find<'a>(&'a self, id: Id, pin: &'a S::Pin<'_>) -> Option<&'a Life> {
        let number = self.seats.of(id).life_of(id)?;
        let life = self.shelf.get(number, pin)?;
        if life.id == id || broken(Control::OthersCells) {
            return Some(life);
        }
        self.drop_unused(life);
        None
    }

    /// The cells of a life.
    pub(crate) fn get<'a>(&'a self, number: u64, pin: &'a S::Pin<'_>) -> Option<&'a Life> {
        self.shelf.get(number, pin)
    }

    /// A word while it is not spread.
    #[inline]
    pub(crate) fn whole<W>(&self, word: W, id: Id) -> Watched<'_, W> {
        Watched { word, seat: self.seats.of(id), id, life: None }
    }

    /// A word while it is spread so.
    pub(crate) fn central<'a, W, R>(
        &'a self,
        word: W,
        life: &Life,
        rules: &'a Rules<R>,
    ) -> Central<'a, Watched<'a, W>, R> {
        let seat = self.seats.of(life.id);
        Central { bucket: Watched { word, seat, id: life.id, life: Some(life.number) }, rules }
    }

    /// Spreads a bucket, if its seat is free. `sealed` tells whether it has been sealed, where that matters.
    #[cold]
    pub(crate) fn promote(&self, id: Id, tag: Option<Tag>, now: u64, sealed: impl Fn() -> bool) {
        let seat = self.seats.of(id);
        if !seat.take() {
            return;
        }
        let number = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
        self.shelf.put(number, Life { spread: self.shelf.spread(), id, tag, number, since: now });
        seat.give(id, number);
        fence(Ordering::SeqCst);
        if sealed() && !broken(Control::GhostSpread) {
            self.end(seat, number);
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
        let seat = self.seats.of(id);
        while let Some(number) = seat.life_of(id) {
            self.end(seat, number);
        }
    }

    /// Spreads a bucket no more: what is at hand in its cells goes back to the word. False if somebody else keeps a cell.
    #[cold]
    pub(crate) fn fold<W: Word, R: Source>(&self, word: W, life: &Life, rules: &Rules<R>) -> bool {
        let folded = life.spread.close(self.central(word, life, rules));
        if folded {
            self.end(self.seats.of(life.id), life.number);
        }
        folded
    }

    /// Drops cells of which nothing is leased, nor can be.
    #[cold]
    pub(crate) fn drop_unused(&self, life: &Life) {
        if life.spread.close_unused() {
            self.end(self.seats.of(life.id), life.number);
        }
    }

    fn end(&self, seat: &Seat, number: u64) {
        if seat.leave(number) {
            self.shelf.remove(number);
        }
    }

    /// Keys that are spread now.
    pub(crate) fn len(&self) -> usize {
        self.seats.all().filter(|seat| seat.life().is_some()).count()
    }
}
