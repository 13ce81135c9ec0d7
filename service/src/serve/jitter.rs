//! Random times, so that processes and connections of one moment do not act at one moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Returns a time between two.
pub(super) fn between(least: Duration, most: Duration) -> Duration {
    let part = RandomState::new().hash_one(0) as u32;
    least + most.saturating_sub(least).mul_f64(f64::from(part) / f64::from(u32::MAX))
}
