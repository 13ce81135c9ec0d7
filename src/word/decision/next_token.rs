//! The wait for the next token, after a decision that left none. It is computed when asked for, so
//! that decisions do not pay for it.
//!
//! The wait for a full bucket is known. All tokens but one come after the next one, so their time
//! is subtracted. For a lease only the latest time of a full bucket is known, so the wait may be
//! longer.
//!
//! Checked by `tests::next_token`, and through headers by `tests/it/headers.rs`.

use std::time::Duration;

use super::{Granted, Wait};
use crate::quota::layout::RawQuota;
use crate::time::tsc::raw_to_nanos;
use crate::word::tick::TickScale;

impl Granted {
    /// Returns the nanoseconds of [`Granted::reset_after`].
    #[inline]
    pub(crate) fn reset_nanos(&self) -> u64 {
        self.reset.nanos()
    }

    /// Returns the time from the decision until the bucket has a token, if it has
    /// [none](Granted::remaining). `quota` is that of the decision.
    ///
    /// Exact to a nanosecond or, by the processor's counter, to a count and one: too long, or short
    /// by 2^-63 of the time to fill before it is rounded. Under a plan it is up to two ticks too
    /// long.
    #[cold]
    pub(crate) fn next_token(&self, quota: RawQuota) -> Duration {
        let RawQuota { tokens, nanos, burst } = quota;
        if self.reset.clock.scale() > 0 {
            // A unit is a token.
            let units = self.reset.units.saturating_sub(burst - 1);
            return Wait { units, ..self.reset }.duration();
        }
        // The other tokens take `X` ns. With `A` the ideal time until the bucket is full, and a
        // clock that is ahead by the factor `1 + d`, the waits for all tokens and for one are
        // `ceil(A / (1 + d))` and `ceil((A - X) / (1 + d))`. So the second is at most the first
        // less `floor(X)`; or 1 ns more for `A` less than `A * d` above a whole number: `d <
        // 2^-63`.
        let others = u128::from(burst - 1) * u128::from(nanos) / u128::from(tokens);
        let others = u64::try_from(others).expect("a bucket fills within 2^62 ns");
        let wait = self.reset.nanos().saturating_sub(others);
        Duration::from_nanos(wait.saturating_add(self.reset.grain()))
    }
}

impl Wait {
    /// The most by which two waits lie closer than the tokens between them take, in nanoseconds.
    fn grain(self) -> u64 {
        // The tick, and the nanosecond or count, to which waits are rounded up.
        let by_ticks = self.clock.packed & TickScale::BY_TICKS != 0;
        let tick = if by_ticks { self.clock.nanos_until(0, 1).saturating_add(1) } else { 0 };
        if self.clock.is_counted() { raw_to_nanos(tick.max(1)) } else { tick }
    }
}
