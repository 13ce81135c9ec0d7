//! Faults: deliberate breaks of the protocol that the models must detect. One at a time is
//! injected, under `--cfg fault`.
//!
//! Without that `cfg` no fault is injected, and the compiled program contains none of this code.

/// A break of one rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The evictor removes a full bucket without sealing it.
    NoSeal,
    /// The evictor writes the seal by a plain store.
    SealByStore,
    /// The evictor removes the present entry of the key, not the one that it sealed.
    RemoveByKey,
    /// The clock is read before the bucket is looked up.
    ClockBeforeLookUp,
    /// A reading from before the look-up decides, even if the bucket was charged meanwhile.
    StaleReadingAccepted,
    /// The same reading is used before and after a seal was met.
    NoRereadAfterSeal,
    /// The same reading is used before and after a lost race.
    NoRereadAfterRace,
    /// A reading behind the stamp sets it back.
    StampMovesBack,
    /// Any difference between clock and stamp counts as time that passed.
    Unclamped,
    /// A bucket may be evicted as soon as it is full.
    NoMargin,
    /// A bucket may be evicted right after a change of quota.
    NoGraceAfterChange,
    /// The evictor ignores plans.
    PlansUnknown,
    /// The evictor loads the slowest plan before the word.
    PlansReadEarly,
    /// A plan is admitted after a charge under it, by the loop alone.
    PlanAdmittedLate,
    /// An attempt under a plan ignores the start of the plan.
    PlanStartUnseen,
    /// An attempt under a plan counts its ticks from 0 in each turn of the stamp.
    TurnForgotten,
    /// The mark of a move is cleared after the step, not before it.
    MoveClearedLate,
    /// An attempt decides although another thread has committed meanwhile.
    LostRaceDecides,
    /// The hook sees the decision of an attempt that lost its race.
    LostAttemptShown,
    /// A key enters the map full, without the debt of its overflow bucket.
    DebtsForgotten,
    /// A key that enters the store looks for its overflow bucket before it is inserted.
    OverflowFoundEarly,
    /// A grant on the overflow bucket stands even if the key has an entry.
    NoVoidGrants,
    /// A caller outside of the store does not see that its key has an entry.
    EntryUnseen,
    /// A reservation is given back although later takes stand on it.
    IgnoreQueuePosition,
    /// A reservation is given back by its mark alone, also where a key is used under plans.
    PlansUnmarked,
    /// An undo gives back the whole take, although refill filled part of it meanwhile.
    AllUndone,
    /// A removal is counted before the load of the word that is sealed.
    RemovalCountedEarly,
    /// A removal is counted after the seal.
    RemovalCountedLate,
    /// A receipt does not check whether its key was removed.
    RemovalUnseen,
    /// A receipt from before the first removal does not look for counts that were made later.
    RemovalsNotMadeLater,
    /// A refund is committed even to a sealed bucket.
    SealedIsGiven,
    /// Readers do not check whether the quota has changed.
    NoRecheck,
    /// The first reader of version 0 stores its raw-counter scale into the slot of any version.
    CountedAnyway,
    /// A helper thread decides for any version that has the slot.
    Unnumbered,
    /// The start of a version is read without a fence after its publication.
    Unfenced,
    /// The reader does not check the slot's fingerprint after the load of its word.
    NoFingerprintRecheck,
    /// The reader does not check that the word on which it refuses is still there.
    NoRefusalRecheck,
    /// Inserting threads of one table set do not exclude each other.
    NoLatch,
    /// An inserting thread reads the clock before it takes the latch.
    ClockBeforeLatch,
    /// A slot that was never taken is taken by its word, although the word may be a key's.
    NewByWord,
    /// A new key is inserted while a restore fills the table.
    InsertsWhileFilled,
    /// A removed slot reads as never charged, so it may be reused at once.
    RemovedAtOnce,
    /// Leased tokens leave their room to refill.
    LeasesUncounted,
    /// A lease is counted only after the commit that took its tokens.
    LeaseCountedLate,
    /// A lease is no longer counted before the commit that ends it.
    LoweredEarly,
    /// The commit that ends a lease is made only if it gives tokens back.
    NotStampedAnew,
    /// A take from a lease is a plain store.
    LeaseByStore,
    /// After a change to a lower burst each lease ends by a commit of its own, and its cell reopens
    /// at once.
    RecalledApart,
    /// After such a change the word is not reduced for a cell that a stopped thread keeps.
    Uncut,
    /// A reading that is behind the stamp of a window sets it back.
    WindowReopened,
    /// A take moves the start of a window from the first use.
    StartMoves,
    /// The oldest sub-window does not count.
    OldestForgotten,
    /// Counts are shifted to the reading, and the stamp stays.
    ShiftedTwice,
    /// A sum of counts has a bit less than its field.
    FieldCarries,
    /// An undo takes back the newest tokens.
    UndoneAnywhere,
    /// An undone take leaves the start of the window that it began.
    StartStays,
    /// A hold that is settled at 0 was no use: the window that it began begins anew.
    UseForgotten,
    /// The excess of a hold comes back to whatever window there is now.
    ExcessAnyway,
    /// A window is evicted as soon as it is over.
    EdgeWithoutMargin,
    /// A key with a place in use is evicted.
    PlacesForgotten,
    /// The next key of a table slot counts its commits from 0.
    NumberFromZero,
    /// A commit on a word of places does not raise the number of commits.
    CommitsUncounted,
    /// The wall clock is looked up once, and counted on from there.
    IndexFromDrift,
    /// A caller that leaves a line leaves its place as it is, however long ago that begins.
    PlacesUnclamped,
    /// A place in line may begin in one run and end in the next.
    PlaceAcrossRuns,
    /// The end of a line goes back to the word although the word has moved on.
    MarkUnseen,
    /// A reservation is made beside callers in line that have no place yet.
    ReserveOvertakes,
    /// Places in line stay where they are when tokens come back.
    ReturnsUnseen,
    /// The head of a line keeps its timer when its turn comes earlier.
    HeadUnwoken,
    /// A line is found without the number of removals in its key's shard.
    LineOfAnotherKey,
    /// The shift to the wall clock is that of the reading which is to be shifted.
    ShiftByReading,
    /// A take that keeps a part of the burst leaves none.
    KeptForgotten,
    /// Words that count windows are never swept.
    NeverSwept,
    /// A turn of the stamp ends for a reading that is behind it.
    TurnSetBack,
    /// An earlier reading decides whatever its age is.
    AnyAge,
    /// An earlier reading decides however far it is ahead of the stamp.
    MomentAhead,
}

/// Returns whether this fault is injected: always false without `--cfg fault`.
#[cfg(not(fault))]
#[inline(always)]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}

/// Returns whether `TOLLGATE_FAULT` names this fault. Prints its name at the first use.
#[cfg(fault)]
pub(crate) fn injected(fault: Fault) -> bool {
    use std::sync::{LazyLock, Once};
    static NAME: LazyLock<String> = LazyLock::new(|| std::env::var("TOLLGATE_FAULT").unwrap_or_default());
    static SAID: Once = Once::new();
    let injected = format!("{fault:?}") == *NAME;
    if injected {
        SAID.call_once(|| println!("broken on purpose: {fault:?}"));
    }
    injected
}
