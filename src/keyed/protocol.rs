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
//! the two steps of either makes at least one of them see the other. (Partner fences: in `charge_new` and
//! `acquire_overflow`; checked by `a_key_that_enters_the_map_brings_its_debts` in `src/tests/models/`.)
//! The word itself needs no more than `bucket/atomic.rs` gives.

use crate::bucket::atomic::{Bucket, BucketRef, Read, stop};
use crate::bucket::engine::{Done, Engine};
use crate::fault::{Fault, injected};
use crate::sync::{Ordering, fence};
use crate::word::decision::Denied;
use crate::word::state::{Outcome, State};
use crate::word::terms::{EVICTION_GRACE, Reading, Refill};
use crate::word::verb::Take;

/// The place of one key in a store: papaya's map, a fixed table, or a stand-in that a model checker can follow.
///
/// It is passed by value, as all that is hot here: what a cold function has a reference to must be kept in memory.
pub(crate) trait Entry<'a>: Copy {
    type BucketRef: BucketRef;
    /// The key's bucket, if it has an entry.
    fn get(self) -> Option<Self::BucketRef>;
    /// Whether it has an entry, or is just getting one.
    fn is_present(self) -> bool {
        self.get().is_some()
    }
    /// Makes an entry, and runs the step on it; if there is no room, decides without. Nothing if there may be an entry now.
    fn insert<P: Refill>(self, read: impl Read<Reading<P>>, step: Take) -> Option<Done<P>>;
    /// Whether a bucket of the store is spread over cores, and so stays.
    fn is_spread(self, _: &Bucket) -> bool {
        false
    }
    /// Lets who is about to make an entry for it go on.
    fn back_off(self) {}
    /// Removes the entry if its bucket is sealed, never by key alone.
    fn remove_sealed(self);
    /// The bucket it shares with others while it has no entry.
    fn overflow_bucket(self) -> &'a Bucket;
}

/// Whether an entry may be removed: if its bucket is sealed, never by key alone.
pub(crate) fn is_removable(bucket: impl BucketRef) -> bool {
    bucket.state() == State::SEALED || injected(Fault::NoSeal) || injected(Fault::RemoveByKey)
}

/// Somebody else's insertion or eviction sends a call back to the start. So does a clock on which seconds pass between two
/// readings of a call, for ever: then there is no room.
const MOST_ROUNDS: usize = 1_000;

/// Runs a step on the bucket at `entry`, and tells the reading that counted.
#[inline(always)]
pub(crate) fn acquire<'a, P: Refill>(
    engine: &Engine,
    entry: impl Entry<'a>,
    read: impl Read<Reading<P>>,
    step: Take,
) -> Done<P> {
    let early = stop(Fault::ClockBeforeLookUp, read);
    let found = entry.get();
    let read = stop(Fault::NoRereadAfterSeal, early);
    if let Some(bucket) = found
        && let Some(done) = engine.charge(bucket, None, read, step)
    {
        return Ok(done);
    }
    acquire_slow(engine, entry, read, step)
}

#[cold]
#[inline(never)]
fn acquire_slow<'a, P: Refill>(
    engine: &Engine,
    entry: impl Entry<'a>,
    read: impl Read<Reading<P>>,
    step: Take,
) -> Done<P> {
    for _ in 0..MOST_ROUNDS {
        let Some(bucket) = entry.get() else {
            match entry.insert(read, step) {
                Some(done) => return done,
                None => entry.back_off(),
            }
            continue;
        };
        if let Some(done) = charge_new(engine, bucket, entry.overflow_bucket(), read, step) {
            return Ok(done);
        }
        entry.remove_sealed();
    }
    let now = engine.clock.nanos();
    Err(Denied::full(step.tokens(), now, Some(now)))
}

/// Runs a step on a bucket that may be uncharged. Nothing if it is sealed.
#[cold]
pub(crate) fn charge_new<P: Refill>(
    engine: &Engine,
    bucket: impl BucketRef,
    overflow: &Bucket,
    read: impl Read<Reading<P>>,
    step: Take,
) -> Option<(Outcome, Reading<P>)> {
    fence(Ordering::SeqCst);
    let initial_state = if injected(Fault::DebtsForgotten) { State::FULL } else { overflow.state() };
    engine.charge(bucket, Some(initial_state), read, step)
}

/// Runs a step on the overflow bucket, for a key that has no entry. Nothing if it got one.
///
/// The decision is void, and tokens it took are lost to those who share the bucket, if the key has an
/// entry after it, or might have had one in between: one that came and went was there for the margin.
#[cold]
pub(crate) fn acquire_overflow<'a, P: Refill>(
    engine: &Engine,
    entry: impl Entry<'a>,
    read: impl Read<Reading<P>>,
    step: Take,
) -> Option<(Outcome, Reading<P>)> {
    let before = engine.clock.nanos();
    if entry.is_present() {
        return None;
    }
    let done = engine.run_overflow(entry.overflow_bucket(), read, step);
    fence(Ordering::SeqCst);
    let absent = !entry.is_present() && engine.clock.nanos().saturating_sub(before) < EVICTION_GRACE;
    (absent || injected(Fault::NoVoidGrants)).then_some(done)
}

/// What a step would come to on the key's bucket, without taking it. Without an entry, that is its overflow bucket.
pub(crate) fn peek<'a, P: Refill>(
    engine: &Engine,
    entry: impl Entry<'a>,
    read: impl Read<Reading<P>>,
    step: Take,
) -> (Outcome, Reading<P>) {
    match entry.get().map(|bucket| engine.look(bucket, read, step)) {
        Some(((true, outcome), reading)) => (outcome, reading),
        _ => {
            let ((_, outcome), reading) = engine.look(entry.overflow_bucket(), read, step);
            (outcome, reading)
        }
    }
}
