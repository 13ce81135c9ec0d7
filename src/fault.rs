//! Deliberate breaks of the protocol, by which the models are seen to fail: one at a time, under `--cfg control`.
//!
//! Without it nothing is broken, and none of this is left in the program.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An evictor removes a bucket that is full, and does not seal it.
    NoSeal,
    /// It stores the seal.
    SealByStore,
    /// What is removed is what the key has now.
    RemoveByKey,
    /// The clock is read before the bucket is looked up.
    ClockBeforeLookUp,
    /// A reading from before the look-up is used, whatever the bucket was charged at meanwhile.
    Unadmitted,
    /// One reading is used before and after a seal was met.
    NoRereadAfterSeal,
    /// One reading is used before and after a race was lost.
    NoRereadAfterRace,
    /// A reading behind the stamp sets it back.
    StampMovesBack,
    /// Whatever the stamp's difference to the clock is, has passed.
    Unclamped,
    /// A bucket may be evicted as soon as it is full.
    NoMargin,
    /// A bucket may be evicted right after a change of quota.
    NotCalm,
    /// An evictor knows of no plans.
    PlansUnknown,
    /// A key enters the map full, whatever its overflow bucket holds.
    DebtsForgotten,
    /// A grant on the overflow bucket counts, whether or not the key has an entry.
    NoVoidGrants,
    /// A reservation is given back though others came after it.
    Unmarked,
    /// It is given back by its mark alone, also where a key is used under plans.
    PlansUnmarked,
    /// All of a take is undone, and what it earned meanwhile is there too.
    AllUndone,
    /// A removal is counted before the word is loaded that is sealed.
    RemovalCountedEarly,
    /// A removal is counted after the seal.
    RemovalCountedLate,
    /// A receipt does not look whether its key was removed.
    RemovalUnseen,
    /// What is given is committed, to a sealed bucket too.
    SealedIsGiven,
    /// Readers do not look whether the quota has changed.
    NoRecheck,
    /// The first reader of the first regime works out the counts of whatever regime has the slot.
    CountedAnyway,
    /// A helper decides for whatever regime has the slot.
    Unnumbered,
    /// The start of a regime is read without a fence after its publication.
    Unfenced,
    /// Nobody looks whose slot it is after its word was loaded.
    NoSecondLook,
    /// Nobody looks whether a word is still there that he refuses on.
    NoThirdLook,
    /// Newcomers of a set of a table do not exclude each other.
    NoLatch,
    /// A newcomer of a table has read the clock before he excludes others.
    ClockBeforeLatch,
    /// A slot that was removed may be had at once.
    RemovedAtOnce,
    /// What is leased leaves its room to what is earned.
    LeasesUncounted,
    /// A lease counts from after the commit that took its tokens.
    LeaseCountedLate,
    /// A lease counts no more before the commit that ends it.
    LoweredEarly,
    /// That commit is made only if it gives something back.
    NotStampedAnew,
    /// What is taken of a lease is stored.
    LeaseByStore,
    /// After a change to a lower burst each lease ends by a commit of its own, and its cell is open
    /// again at once.
    RecalledApart,
    /// After such a change the word is not cut beside a cell that a stopped thread keeps.
    Uncut,
    /// An evictor does not look whether a key is spread.
    SpreadEvicted,
    /// Nobody looks whether a key is spread after its word was loaded.
    NotWatched,
    /// Cells of a key that is spread no more are open.
    FoldedOpen,
    /// A key is spread though it was sealed just before.
    GhostSpread,
    /// A key that is removed leaves its cells to the next.
    LeasesInherited,
    /// Who finds cells at his slot takes them for his.
    OthersCells,
    /// The cells of one bucket are those of the next that has them.
    LivesAlike,
    /// Who commits does not look whether the leases he counted with were of his bucket.
    OthersLeases,
    /// Who could not close all cells opens those that he did, whatever has become of them.
    ReopenedAnyway,
}

/// Whether this is broken.
#[cfg(not(control))]
#[inline(always)]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}

/// Whether this is broken: what `TOLLGATE_CONTROL` names. Says so when it first matters.
#[cfg(control)]
pub(crate) fn injected(control: Fault) -> bool {
    use std::sync::{LazyLock, Once};
    static NAME: LazyLock<String> = LazyLock::new(|| std::env::var("TOLLGATE_CONTROL").unwrap_or_default());
    static SAID: Once = Once::new();
    let injected = format!("{control:?}") == *NAME;
    if injected {
        SAID.call_once(|| println!("broken on purpose: {control:?}"));
    }
    injected
}
