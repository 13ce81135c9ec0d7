//! The attempt on the bucket of a known key, in the map or the table of a limiter.

use crate::bucket::atomic::{BucketRef, Miss, Order, ReadClock};
use crate::word::by_refill::ByRefill;
use crate::word::state::{Reading, TakeOutcome};
use crate::word::verb::Take;

/// Attempts once to take from a known key's bucket.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn attempt<B: ByRefill>(
    found: Option<impl BucketRef>,
    read: impl ReadClock,
    take: Take,
    by: B,
) -> Result<(TakeOutcome, Reading<B::Refill>), Miss> {
    // Not a closure, which has no `inline` attribute: out of line, a decision took a quarter
    // longer.
    match found {
        Some(bucket) => bucket.attempt_by(Order::WordFirst, read, take, by),
        None => Err(Miss::Absent),
    }
}

/// Attempts in the store of a limiter, and answers; or returns the key and the reason of the miss.
///
/// A macro, as [`attempt_by`] is: an attempt returns from its function.
macro_rules! attempt_in_store {
    ($store:expr, $key:expr, $read:expr, $take:expr, $by:expr, |$done:ident| $answer:expr) => {
        match $store {
            $crate::keyed::store::Store::Map(buckets) => {
                // Only the guard is live on the hot path. It is not moved: that would copy it in
                // each call.
                let (key, map) = ($key, buckets.map());
                let guard = map.guard();
                match $crate::keyed::attempt::attempt(map.get(&key.in_map(), &guard), $read, $take, $by) {
                    Ok($done) => {
                        // First, so that the compiler drops a wait that the caller does not ask
                        // for.
                        drop(guard);
                        return $answer;
                    }
                    Err(missed) => (key, missed),
                }
            }
            $crate::keyed::store::Store::Table(table) => {
                let key = $key;
                match $crate::keyed::attempt::attempt(table.find(key.full), $read, $take, $by) {
                    Ok($done) => return $answer,
                    Err(missed) => (key, missed),
                }
            }
        }
    };
}

/// Attempts under a guard, and answers; or returns the reason of the miss.
macro_rules! attempt_under_guard {
    ($pin:expr, $key:expr, $read:expr, $take:expr, $by:expr, |$done:ident| $answer:expr) => {
        match $pin {
            $crate::keyed::store::StoreGuard::Map(map, guard) => {
                match $crate::keyed::attempt::attempt(map.get(&$key.in_map(), guard), $read, $take, $by) {
                    Ok($done) => return $answer,
                    Err(missed) => missed,
                }
            }
            $crate::keyed::store::StoreGuard::Table(table) => {
                match $crate::keyed::attempt::attempt(table.find($key.full), $read, $take, $by) {
                    Ok($done) => return $answer,
                    Err(missed) => missed,
                }
            }
        }
    };
}
pub(crate) use {attempt_in_store, attempt_under_guard};
