//! The parameters of a call for SQL.
//!
//! Each is a `BIGINT`, and so is each sum of two of them. A server computes
//! [`Bucket::step`](crate::Bucket::step) or [`Count::step`](crate::Count::step) from them.

use super::row::fill_us;
use crate::law::amount::Amount;
use crate::law::any_law::Law;
use crate::law::spec::Spec;
use crate::store::op::Op;

/// Returns a call in numbers, in the order of the statements.
pub(crate) fn parameters(op: &Op<'_>) -> [i64; 12] {
    match &op.law {
        Law::Bucket(spec) => of_bucket(spec, op.amount),
        Law::Count(spec) => spec.numbers(op.amount),
    }
}

/// Returns a call on a bucket in numbers. All but the last two are in credits, ticks or
/// microseconds.
///
/// By the bounds of a spec, capacity and floor together are below 2^53. The credits that were spent
/// and those that are given back are cut to one token more than both.
fn of_bucket(spec: &Spec, amount: Amount) -> [i64; 12] {
    let (capacity, floor, unit) = (spec.capacity() as i64, spec.floor() as i64, spec.per_token() as i64);
    let all = (capacity + floor) / unit + 1;
    let spent = i64::try_from(amount.spent).map_or(all, |spent| spent.min(all));
    let back = amount.max.saturating_neg().clamp(0, capacity / unit + floor / unit + 1);
    [
        // The level of a full bucket.
        capacity,
        // The deepest debt: no charge goes below it.
        floor,
        // The debt that leases may take. If it is above 0, a call gets half of the tokens at most.
        spec.debt_credits() as i64,
        // The microseconds of a tick, and the credits that it earns.
        spec.tick_us() as i64,
        spec.per_tick() as i64,
        // The credits of a token.
        unit,
        // The ticks in which the bucket fills from its floor, and these in microseconds.
        spec.fill_ticks() as i64,
        fill_us(spec),
        // The credits that were spent without the store.
        spent * unit,
        // The credits that are given back.
        back * unit,
        // The fewest tokens to grant.
        amount.min,
        // The most tokens to grant; negative if tokens are given back.
        amount.max,
    ]
}
