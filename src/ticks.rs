//! The clock that counts time in what it earns.

/// The clock that counts ticks: `tick = (ns * multiplier) >> (64 + shift)`, the multiplier rounded up.
///
/// The multiplier is `whole * 2^64 + part` and has at least 64 significant bits: either `shift` is 0
/// (at least half a tick a nanosecond) or the multiplier is at least 2^63. Rounding it up makes a whole
/// token's time count at least a whole token, so nobody is late; the excess is under a quarter of a
/// tick in 2^62 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickClock {
    pub(crate) part: u64,
    /// `whole * 256 + shift`: one word, so that a change of quota has few to store.
    pub(crate) gear: u64,
}

impl TickClock {
    /// One tick a nanosecond.
    pub(crate) const NANOS: TickClock = TickClock { part: 0, gear: 1 << 8 };

    /// `tokens * 2^(fraction - scale)` ticks every `nanos`.
    pub(crate) const fn new(tokens: u64, nanos: u64, fraction: u32, scale: u32) -> Self {
        // Long division, one bit of the quotient at a time. `rest < nanos <= 2^62`, so doubling it
        // stays in 63 bits; the quotient stays under 2^(64 + 13).
        let mut quotient = (tokens / nanos) as u128;
        let mut rest = tokens % nanos;
        let mut shift = 0;
        let mut bits = 64 + fraction - scale;
        loop {
            while bits > 0 {
                rest *= 2;
                quotient = quotient * 2 + (rest >= nanos) as u128;
                if rest >= nanos {
                    rest -= nanos;
                }
                bits -= 1;
            }
            if quotient >= 1 << 63 {
                break;
            }
            shift += 1;
            bits = 1;
        }
        if rest > 0 {
            quotient += 1;
        }
        // At most 1,000 * 2^3 ticks a nanosecond (a faster tick leaves no range): `whole` has 13 bits.
        let whole = (quotient >> 64) as u64;
        TickClock { part: quotient as u64, gear: whole << 8 | shift }
    }

    const fn shift(&self) -> u32 {
        (self.gear & 63) as u32
    }

    const fn multiplier(&self) -> u128 {
        ((self.gear >> 8) as u128) << 64 | self.part as u128
    }

    /// The tick at a clock reading, modulo 2^64.
    ///
    /// Where `shift` is above 0 nothing wraps: the product is then below 2^126.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        let part = ((nanos as u128 * self.part as u128) >> 64) as u64;
        nanos.wrapping_mul(self.gear >> 8).wrapping_add(part) >> self.shift()
    }

    /// How far into its tick a reading is, exact in units of `2^-(64 + shift)` ticks.
    const fn into(&self, nanos: u64) -> u128 {
        (nanos as u128).wrapping_mul(self.multiplier()) & (u128::MAX >> (64 - self.shift()))
    }

    /// A span in whole ticks, rounded up.
    pub(crate) const fn ticks_in(&self, nanos: u64) -> u64 {
        // The multiplier is less than 1 too large, the product less than `nanos`.
        self.tick(nanos) + (self.into(nanos) >= nanos as u128) as u64
    }

    /// The least time after the reading `nanos` at which `ticks` more ticks have passed: one
    /// nanosecond earlier they have not.
    pub(crate) fn nanos_until(&self, nanos: u64, ticks: u64) -> u64 {
        let bits = 64 + self.shift();
        // A wait is a fill time and a jitter window at most, well below 2^63 ns of 2^64 units each; but what was owed before
        // a change to a slow quota may take longer, and is told as the longest there is.
        let goal = match u128::from(ticks).checked_shl(bits) {
            Some(goal) if goal >> bits == u128::from(ticks) => goal,
            _ => return u64::MAX,
        };
        let wait = goal.saturating_sub(self.into(nanos)).div_ceil(self.multiplier());
        u64::try_from(wait).unwrap_or(u64::MAX)
    }
}
