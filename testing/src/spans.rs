//! Spans of time, and quotas over all magnitudes.

use std::time::Duration;

use proptest::prelude::*;

/// The nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// The nanoseconds of an hour.
pub const HOUR: u64 = 3_600 * SECOND;
/// The nanoseconds of a day.
pub const DAY: u64 = 24 * HOUR;

/// Returns a duration of nanoseconds.
pub const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Usual quotas, and some at the edges of the range: tokens, nanoseconds, and the burst.
pub const QUOTAS: [(u64, u64, u64); 24] = [
    (1, SECOND, 1),
    (100, SECOND, 200),
    (1_000, SECOND, 1_000),
    (7, SECOND, 10),
    (12_345, SECOND, 777),
    (333_333, SECOND, 50),
    (1_000_000, SECOND, 1_000_000),
    (1_000_000, SECOND, 10),
    (1_000_000_000, SECOND, 1_000_000),
    (12_500_000_000, SECOND, 64 << 20),
    (150_000_001, SECOND, 1_000),
    (1_000, HOUR, 1_000),
    (999_983, HOUR, 1_000_000),
    (5, DAY, 5),
    (1, 365 * DAY, 1),
    (1_000_000_000_000, SECOND, 1_000_000_000),
    (1, 1 << 62, 1),
    (3, 1 << 62, 3),
    (1_000, 1, 1),
    (1_000_000_000_000, SECOND, 1 << 40),
    (1_000, SECOND, 1 << 40),
    (7_919, 104_729, 611_953),
    (1, 3, 10),
    (999_999_999_989, SECOND, 65_537),
];

/// Returns the text of a quota of these numbers: a text has any burst beside any rate.
pub fn quota_text((tokens, nanos, burst): (u64, u64, u64)) -> String {
    format!("{tokens}/{nanos}ns burst {burst}")
}

/// Returns the numbers of any quota, over all magnitudes. Half of them are from [`QUOTAS`]. Some
/// cannot be held.
pub fn quota_numbers() -> impl Strategy<Value = (u64, u64, u64)> {
    let spread = || (0..63_u32, any::<u64>()).prop_map(|(shift, n)| (n >> 1 >> shift).max(1));
    // The reference counts in 128 bits.
    let any_quota = (spread(), spread(), spread())
        .prop_map(|(tokens, nanos, burst)| (tokens.min(1 << 44), nanos.min(1 << 62), burst.min(1 << 40)));
    prop_oneof![any_quota, (0..QUOTAS.len()).prop_map(|row| QUOTAS[row])]
}
