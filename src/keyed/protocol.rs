//! The protocol of one key: the bucket that a thread may charge, while entries come and go.
//!
//! # Invariants
//!
//! * A key has one live bucket, because an evictor seals the word of a bucket that has been full
//!   for the eviction grace, then removes the entry, and a sealed word is never charged again. A
//!   thread that still holds the reference meets the seal, helps to remove the entry, and looks the
//!   key up again.
//! * A key that was limited outside of the store stays limited inside, because a bucket is inserted
//!   uncharged (`FULL`), and its first charge starts from the level of the key's overflow bucket.
//!   That is full unless the limiter ran out of room, so evicting an uncharged bucket changes no
//!   decision.
//! * A grant on the overflow bucket counts only if the key had no entry from before until after it.
//!   A take that cannot look for an entry afterwards is made under the mutex of that bucket's line:
//!   that for a caller in line, of a reservation behind it, or of a hold whose cost was higher. A
//!   key that has an entry takes that mutex before its bucket starts, if there was ever such a
//!   line.
//!
//! # Orderings
//!
//! An insertion and a charge of the overflow bucket race: one thread inserts an entry, then reads
//! the overflow bucket; another thread charges the overflow bucket, then looks for an entry. A
//! `SeqCst` fence between the two steps of either makes at least one of them see the other.
//! (Partner fences: in `initial_state` and in `acquire_overflow`; checked by
//! `a_key_that_enters_the_map_brings_its_debts` and `a_key_that_gets_a_slot_brings_its_debts` in
//! `src/tests/models/`.) The word itself needs no more than the orderings of `bucket/atomic.rs`.

use crate::bucket::atomic::{Bucket, BucketRef, ReadClock, stop};
use crate::bucket::engine::{Done, Engine};
use crate::fault::{Fault, injected};
use crate::sync::{Ordering, fence};
use crate::word::decision::Denied;
use crate::word::state::State;
use crate::word::terms::EVICTION_GRACE;
use crate::word::verb::Call;

/// The place of one key in a store: a map, a fixed table, or the stand-in of a model.
///
/// Passed by value: a reference handed to a cold function would force the value out of registers on
/// the hot path.
pub(crate) trait Entry<'a>: Copy {
    type BucketRef: BucketRef;
    /// Returns the key's bucket, if it has an entry.
    fn get(self) -> Option<Self::BucketRef>;
    /// Returns whether the key has an entry, or a thread is inserting one.
    fn is_present(self) -> bool {
        self.get().is_some()
    }
    /// Makes an entry and runs the call on it; without room, decides without an entry. Returns
    /// `None` if there may be an entry now.
    fn insert(self, read: impl ReadClock, call: &Call<'_>) -> Option<Result<Done, Denied>>;
    /// Lets a thread that is inserting the entry go on.
    fn back_off(self) {}
    /// Removes the entry if its bucket is sealed, never by key alone.
    fn remove_sealed(self);
    /// Turns away the callers that wait for the overflow bucket: the key has an entry.
    fn close_outside(self) {}
    /// Returns the bucket that the key shares with others while it has no entry, to charge it.
    fn overflow_bucket(self) -> &'a Bucket;
    /// Returns that bucket to look at it: a full one if it was not made yet.
    fn overflow_or_full(self) -> &'a Bucket;
}

/// Returns whether an entry may be removed: if its bucket is sealed, never by key alone.
pub(crate) fn is_removable(bucket: impl BucketRef) -> bool {
    bucket.state() == State::SEALED || injected(Fault::NoSeal) || injected(Fault::RemoveByKey)
}

/// Rounds of one call. An insertion or eviction by another thread sends a call back to the start.
/// So does a clock on which seconds pass between two readings of a call, for ever: then there is no
/// room.
pub(crate) const MAX_ROUNDS: usize = 1_000;

/// Runs a call on the bucket at `entry`, which is not looked up if the caller found none just now.
#[inline(always)]
pub(crate) fn acquire<'a>(
    engine: &Engine,
    entry: impl Entry<'a>,
    is_absent: bool,
    read: impl ReadClock,
    call: &Call<'_>,
) -> Result<Done, Denied> {
    let early = stop(Fault::ClockBeforeLookUp, read);
    let found = if is_absent { None } else { entry.get() };
    let read = stop(Fault::NoRereadAfterSeal, early);
    if let Some(bucket) = found
        && let Some(done) = engine.charge(bucket, None, read, *call)
    {
        return Ok(done);
    }
    acquire_slow(engine, entry, found, read, call)
}

#[cold]
#[inline(never)]
fn acquire_slow<'a, E: Entry<'a>>(
    engine: &Engine,
    entry: E,
    mut found: Option<E::BucketRef>,
    read: impl ReadClock,
    call: &Call<'_>,
) -> Result<Done, Denied> {
    for _ in 0..MAX_ROUNDS {
        if let Some(bucket) = found {
            if let Some(done) = engine.charge(bucket, Some(initial_state(entry)), read, *call) {
                return Ok(done);
            }
            entry.remove_sealed();
        } else if let Some(done) = entry.insert(read, call) {
            return done;
        } else {
            entry.back_off();
        }
        found = entry.get();
    }
    let now = engine.clock.nanos();
    Err(Denied::full(call.take.n(), now, Some(now)))
}

/// Returns the state from which an uncharged bucket of a store starts: that of the overflow bucket.
///
/// The fence comes after the insertion, and before the look for the overflow bucket: another thread
/// may make that bucket meanwhile.
fn initial_state<'a>(entry: impl Entry<'a>) -> State {
    fence(Ordering::SeqCst);
    entry.close_outside();
    if injected(Fault::DebtsForgotten) { State::FULL } else { entry.overflow_or_full().state() }
}

/// Inserts an uncharged bucket by `insert`, and returns it with the state from which it starts.
pub(crate) fn insert_uncharged<'a, T>(
    entry: impl Entry<'a>,
    insert: impl FnOnce() -> Option<T>,
) -> Option<(T, State)> {
    let early = injected(Fault::OverflowFoundEarly).then(|| entry.overflow_or_full());
    let inserted = insert()?;
    let start = initial_state(entry);
    Some((inserted, early.map_or(start, |bucket| bucket.state())))
}

/// Runs a call on the overflow bucket of a key without an entry. Returns `None` if the key got one.
///
/// The decision is void, and tokens that it took are lost to the keys that share the bucket, if the
/// key has an entry after it, or might have had one in between: an entry that came and went was
/// there for the eviction grace.
pub(crate) fn acquire_overflow<'a>(
    engine: &Engine,
    entry: impl Entry<'a>,
    read: impl ReadClock,
    call: Call<'_>,
) -> Option<Done> {
    let before = engine.clock.nanos();
    if entry.is_present() {
        return None;
    }
    let done = engine.charge(entry.overflow_bucket(), Some(State::FULL), read, call)?;
    fence(Ordering::SeqCst);
    let absent = !entry.is_present() && engine.clock.nanos().saturating_sub(before) < EVICTION_GRACE;
    (absent || injected(Fault::NoVoidGrants)).then_some(done)
}
