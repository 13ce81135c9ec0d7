//! The window of a key, as its last answer told it.

/// The window of the last answer, and the tokens that were spent without the store. Times are
/// nanoseconds since the origin.
#[derive(Default)]
pub(super) struct KeyWindow {
    /// The end by the clock of the store; 0 before the first answer.
    pub(super) edge_us: u64,
    /// The end by the local clock: never late.
    pub(super) until: u64,
    /// The tokens that are left in addition from the end on.
    pub(super) freed: u64,
    /// Whether the store had no token for the last call.
    pub(super) is_used_up: bool,
    /// The window of the spent tokens: its end by the clock of the store, or 0 for the present one.
    pub(super) spent_of: u64,
    /// The time from which they count in no window.
    pub(super) spent_until: u64,
}
