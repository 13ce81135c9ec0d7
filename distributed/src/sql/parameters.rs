//! The parameters of a call for SQL.
//!
//! Each is a `BIGINT`, and so is each sum of two of them. A server computes
//! [`Bucket::step`](crate::Bucket::step) from them.

use super::row::fill_us;
use crate::credits::spec::Spec;
use crate::store::op::Op;

/// A call in numbers. All but `least` and `most` are in credits, ticks or microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The level of a full bucket.
    pub(crate) capacity: i64,
    /// The deepest debt: no charge goes below it.
    pub(crate) floor: i64,
    /// The debt that leases may take. If it is above 0, a call gets half of the tokens at most.
    pub(crate) debt: i64,
    /// The microseconds of a tick.
    pub(crate) tick: i64,
    /// The credits that a tick earns.
    pub(crate) per_tick: i64,
    /// The credits of a token.
    pub(crate) unit: i64,
    /// The ticks in which the bucket fills from its floor.
    pub(crate) fill: i64,
    /// These ticks in microseconds.
    pub(crate) fill_us: i64,
    /// The credits that were spent without the store.
    pub(crate) spent: i64,
    /// The credits that are given back.
    pub(crate) back: i64,
    /// The fewest tokens to grant.
    pub(crate) least: i64,
    /// The most tokens to grant; negative if tokens are given back.
    pub(crate) most: i64,
}

impl Parameters {
    /// Returns the parameters of a call.
    ///
    /// By the bounds of a spec, capacity and floor together are below 2^53. `spent` and `back` are
    /// cut to one token more than both.
    pub(crate) fn of(op: &Op<'_>) -> Parameters {
        let spec: &Spec = &op.spec;
        let (capacity, floor, unit) = (spec.capacity() as i64, spec.floor() as i64, spec.per_token() as i64);
        let all = (capacity + floor) / unit + 1;
        let spent = i64::try_from(op.amount.spent).map_or(all, |spent| spent.min(all));
        let back = op.amount.max.saturating_neg().clamp(0, capacity / unit + floor / unit + 1);
        Parameters {
            capacity,
            floor,
            debt: spec.debt_credits() as i64,
            tick: spec.tick_us() as i64,
            per_tick: spec.per_tick() as i64,
            unit,
            fill: spec.fill_ticks() as i64,
            fill_us: fill_us(spec),
            spent: spent * unit,
            back: back * unit,
            least: op.amount.min,
            most: op.amount.max,
        }
    }

    /// Returns the parameters in the order of the statements.
    pub(crate) fn columns(&self) -> [i64; COLUMNS] {
        let Parameters {
            capacity,
            floor,
            debt,
            tick,
            per_tick,
            unit,
            fill,
            fill_us,
            spent,
            back,
            least,
            most,
        } = *self;
        [capacity, floor, debt, tick, per_tick, unit, fill, fill_us, spent, back, least, most]
    }
}

/// The number of parameters of a call.
pub(crate) const COLUMNS: usize = 12;
