//! A call on a count in numbers, for the servers that compute the step of the law.

use super::amount::Amount;
use super::count_spec::{CountSpec, Edges};
use super::spec::MAX_CREDITS;

impl CountSpec {
    /// Returns a call in numbers up to 2^53, from which a server computes the step of the law.
    pub(crate) fn numbers(&self, amount: Amount) -> [i64; 12] {
        let counted = MAX_CREDITS as i64 + 1;
        let max = amount.max.clamp(-counted, counted);
        let [kind, first, second, third] = match self.edges() {
            // Periods and times are below 2^53.
            Edges::Every { period_us, offset_us } => [0, period_us as i64, offset_us, 0],
            Edges::FirstUse { period_us } => [1, period_us as i64, 0, 0],
            Edges::Given([first, second, third]) => [2, first as i64, second as i64, third as i64],
        };
        [
            self.limit() as i64,
            self.counts() as i64,
            kind,
            first,
            second,
            third,
            i64::from(self.halves(amount)),
            // The tokens that were spent without the store, those that go back, and their window.
            amount.spent.min(MAX_CREDITS) as i64,
            max.min(0).saturating_neg(),
            amount.of_us.min(MAX_CREDITS) as i64,
            // The fewest and the most tokens to grant.
            amount.min.clamp(0, counted),
            max.max(0),
        ]
    }
}
