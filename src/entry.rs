//! The protocol of one key: who may charge which bucket, while entries come and go.
//!
//! What it keeps true, whatever the interleaving:
//!
//! * a key has one live bucket. Evicting is sealing the word of a bucket that has been full for the
//!   margin, then removing the entry; a sealed word is never charged again. Whoever still holds the
//!   reference meets the seal, helps to remove the entry, and looks the key up again;
//! * a bucket enters the map uncharged (`FULL`), and its first charge starts from what the key's overflow
//!   bucket holds, which is full unless the limiter ran out of room. So a key that was limited outside of the
//!   map stays limited inside, and evicting an uncharged bucket changes nothing;
//! * a grant on the overflow bucket counts only if the key had no entry from before until after it.
//!
//! # Orderings
//!
//! Entering the map and charging the overflow bucket race: one thread inserts an entry, then reads the
//! overflow bucket; another charges the overflow bucket, then looks for an entry. A `SeqCst` fence between
//! the two steps of either makes at least one of them see the other. (Partner fences: in `first_charge` and
//! `acquire_overflow`; checked by `a_key_that_enters_the_map_brings_its_debts` in `src/tests/loom.rs`.)
//! The word itself needs no more than `bucket.rs` gives.

use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::state::{Outcome, State};
use crate::sync::{Ordering, fence};
use crate::terms::{MARGIN_NANOS, Terms};

/// The place of one key in a map: papaya's, or a stand-in that a model checker can follow.
pub(crate) trait Place {
    /// The key's bucket, if it has an entry.
    fn find(&self) -> Option<&Bucket>;
    /// Removes the entry if its bucket is sealed, never by key alone.
    fn bury(&self);
}

/// What became of an attempt to charge a bucket in the map.
enum Charge {
    Done(Outcome, u64),
    /// Never charged: it starts as its overflow bucket stands.
    Unborn,
    Sealed,
}

/// What all decisions of one limiter are made with.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) terms: Terms,
    pub(crate) clock: Clock,
}

impl Rules {
    /// Takes `need` units from the bucket at `place`, and tells the clock reading that counted.
    ///
    /// Where there is no entry, `admit` returns the decision, or nothing if there may be one now.
    #[inline]
    pub(crate) fn acquire<R>(
        &self,
        place: &impl Place,
        need: u64,
        overflow: &Bucket,
        decide: impl Fn(Outcome, u64) -> R,
        mut admit: impl FnMut() -> Option<R>,
    ) -> R {
        loop {
            let Some(bucket) = place.find() else {
                match admit() {
                    Some(decision) => return decision,
                    None => continue,
                }
            };
            match self.charge(bucket, need, None) {
                Charge::Done(outcome, now) => return decide(outcome, now),
                Charge::Unborn => {
                    if let Some((outcome, now)) = self.first_charge(bucket, need, overflow) {
                        return decide(outcome, now);
                    }
                }
                Charge::Sealed => {}
            }
            place.bury();
        }
    }

    #[inline]
    fn charge(&self, bucket: &Bucket, need: u64, unborn: Option<State>) -> Charge {
        let terms = &self.terms;
        bucket.drive(
            || self.clock.nanos(),
            |state, now| {
                let from = match unborn {
                    _ if state.is_level() => state,
                    Some(start) if state == State::FULL => start,
                    None if state == State::FULL => return (Charge::Unborn, None),
                    _ => return (Charge::Sealed, None),
                };
                let (outcome, next) = from.take(terms, terms.ticks.tick(now), need);
                // Refused at birth: the bucket has a level and a stamp from here on all the same.
                let born = (from != state).then_some(from);
                (Charge::Done(outcome, now), next.or(born))
            },
        )
    }

    /// Takes `need` units from a bucket that may be uncharged. Nothing if it is sealed.
    #[cold]
    pub(crate) fn first_charge(
        &self,
        bucket: &Bucket,
        need: u64,
        overflow: &Bucket,
    ) -> Option<(Outcome, u64)> {
        fence(Ordering::SeqCst);
        match self.charge(bucket, need, Some(overflow.state())) {
            Charge::Done(outcome, now) => Some((outcome, now)),
            Charge::Unborn | Charge::Sealed => None,
        }
    }

    /// Takes `need` units from the overflow bucket, for a key that has no entry. Nothing if it got one.
    ///
    /// The decision is void, and tokens it took are lost to those who share the bucket, if the key has an
    /// entry after it, or might have had one in between: one that came and went was there for the margin.
    #[cold]
    pub(crate) fn acquire_overflow(
        &self,
        place: &impl Place,
        need: u64,
        overflow: &Bucket,
    ) -> Option<(Outcome, u64)> {
        let before = self.clock.nanos();
        if place.find().is_some() {
            return None;
        }
        let (outcome, now) = overflow.drive(
            || self.clock.nanos(),
            |state, now| {
                let (outcome, next) = state.take(&self.terms, self.terms.ticks.tick(now), need);
                ((outcome, now), next)
            },
        );
        fence(Ordering::SeqCst);
        let absent = place.find().is_none() && self.clock.nanos().saturating_sub(before) < MARGIN_NANOS;
        absent.then_some((outcome, now))
    }

    /// What the key's bucket holds, as `view` tells it. Without an entry, that is its overflow bucket.
    pub(crate) fn peek<R>(
        &self,
        bucket: Option<&Bucket>,
        overflow: &Bucket,
        view: impl Fn(State, u64) -> R,
    ) -> R {
        let look = |bucket: &Bucket| {
            bucket.drive(|| self.clock.nanos(), |state, now| ((state.is_level(), view(state, now)), None))
        };
        match bucket.map(look) {
            Some((true, found)) => found,
            _ => look(overflow).1,
        }
    }

    /// Seals a bucket that has been full for the margin; else tells the clock reading at which it may be.
    ///
    /// True if this call sealed it, false if it was sealed already.
    pub(crate) fn seal_if_idle(&self, bucket: &Bucket) -> Result<bool, u64> {
        let terms = &self.terms;
        bucket.drive(
            || self.clock.nanos(),
            |state, now| {
                if state == State::SEALED {
                    return (Ok(false), None);
                }
                match state.evictable_in(terms, terms.ticks.tick(now)) {
                    0 => (Ok(true), Some(State::SEALED)),
                    ticks => {
                        let wait = terms.ticks.nanos_until(now, ticks);
                        (Err(now.saturating_add(wait)), None)
                    }
                }
            },
        )
    }

    /// Seals a bucket whatever it holds. False if it was sealed already.
    pub(crate) fn seal(&self, bucket: &Bucket) -> bool {
        bucket.drive(
            || 0,
            |state, _| {
                let live = state != State::SEALED;
                (live, live.then_some(State::SEALED))
            },
        )
    }
}
