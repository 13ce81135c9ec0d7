//! The list of the contenders.

use super::fleet::{Fleet, fleet};
use super::ours::Ours;
use super::{check_then_count, compare_and_set, counter, gcra};
use crate::limit::{Failure, Setup};

/// The contenders on Redis. The first two are ours.
pub const ON_REDIS: [&str; 6] =
    ["leased", "exact", "compare-and-set", "check, then count", "GCRA", "counter"];

/// Makes a contender on Redis.
///
/// # Errors
///
/// The server does not answer.
pub async fn on_redis(name: &str, setup: &Setup) -> Result<Box<dyn Fleet>, Failure> {
    match name {
        "compare-and-set" => fleet(|| compare_and_set::CompareAndSet::new(setup)).await,
        "check, then count" => fleet(|| check_then_count::CheckThenCount::new(setup)).await,
        "GCRA" => fleet(|| gcra::Gcra::new(setup)).await,
        "counter" => fleet(|| counter::Counter::new(setup)).await,
        _ => ours(name, setup).await,
    }
}

/// Makes our limiters in a mode, `leased` or `exact`, on the store of any URL.
///
/// # Errors
///
/// There is no such store.
pub async fn ours(mode: &str, setup: &Setup) -> Result<Box<dyn Fleet>, Failure> {
    fleet(|| Ours::new(mode, setup)).await
}
