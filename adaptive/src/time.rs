//! Times in nanoseconds.

use std::time::Duration;

/// Returns a time in nanoseconds, at most `u64::MAX` of them.
pub(crate) fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
