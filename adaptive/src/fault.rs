//! Faults: deliberate breaks of the protocol that the models must detect. One at a time is
//! injected, under `--cfg fault`.

/// A break of one rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A request in flight is counted after the check, by a step of its own.
    CheckThenCount,
    /// The limit on requests in flight is read apart from their count.
    LimitApart,
    /// A place that is dropped without a word stays taken.
    LeakOnDrop,
    /// A request that was admitted under an earlier limit is a sample.
    OldSamples,
    /// Two threads run the controller of one interval.
    TwoControllers,
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
