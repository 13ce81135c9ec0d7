//! The scale from clock readings to ticks, in fixed point.

use crate::rule::calendar;

/// The scale from nanoseconds to ticks: `tick = (ns * multiplier) >> (64 + shift)`, the multiplier
/// rounded up.
///
/// The multiplier is `whole * 2^64 + multiplier_low` and has at least 64 significant bits: either
/// `shift` is 0 (at least half a tick a nanosecond) or the multiplier is at least 2^63.
///
/// The multiplier is rounded up so that a whole token's time counts at least a whole token: no
/// token is late. The excess is under a quarter of a tick in 2^62 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickScale {
    pub(crate) multiplier_low: u64,
    /// `whole * 2^16 + worth * 2^8 + shift`, and the flags below: one word, so that a change of
    /// quota stores few words. A tick earns `2^scale` units, and a token is `2^fraction` of them.
    /// At most one of these two is above 0: `worth` is the scale, or the fraction below 2^6.
    pub(crate) packed: u64,
}

impl TickScale {
    /// Flag in `packed`: the raw-counter scale has been computed, so that `packed` is non-zero.
    const COMPUTED: u64 = 1 << 7;
    /// Flag in `packed`: readings are raw counter units, not nanoseconds.
    const RAW: u64 = 1 << 6;
    /// Flag in `packed`: the scale is [by ticks](TickScale::by_ticks).
    pub(crate) const BY_TICKS: u64 = 1 << 15;

    /// The bits of `packed` from here on are free.
    const PART: u32 = 48;

    /// One tick a nanosecond.
    pub(crate) const NANOS: TickScale = TickScale { multiplier_low: 0, packed: 1 << 16 };

    /// A tick each civil month, for waits from a reading in Unix time.
    pub(crate) const MONTHS: TickScale =
        TickScale { multiplier_low: 0, packed: TickScale::BY_TICKS | 1 << 14 };

    /// Returns the scale with `tokens * 2^(fraction - scale)` ticks every `nanos`.
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
        // At most 1,000 * 2^3 ticks a nanosecond (a faster tick leaves no range): `whole` has 13
        // bits.
        let whole = (quotient >> 64) as u64;
        let worth = scale.wrapping_sub(fraction) as u64 & 63;
        TickScale { multiplier_low: quotient as u64, packed: whole << 16 | worth << 8 | shift }
    }

    /// Returns the scale from raw readings to the same ticks. Neither word of the result is 0.
    ///
    /// A raw unit is `whole + multiplier_low / 2^64` nanoseconds.
    ///
    /// The result is ahead of the ticks of those nanoseconds, which are rounded down, by at most
    /// the ticks of one nanosecond.
    pub(crate) const fn counted(&self, whole: u64, multiplier_low: u64) -> TickScale {
        // At most 13 and 12 bits above the 64.
        let (more, less) = ((self.packed >> 16) as u128, self.multiplier_low as u128);
        let least = (less * multiplier_low as u128).div_ceil(1 << 64);
        let product = self.multiplier() * whole as u128 + more * multiplier_low as u128 + least;
        let (above, below) = ((product >> 64) as u64, product as u64);
        let counted = if whole == 1 && multiplier_low == 0 { 0 } else { TickScale::RAW };
        let packed = above << 16 | self.packed & 0xffff | TickScale::COMPUTED | counted;
        // A 2^-64th of a tick per raw unit makes no difference to whole ticks.
        TickScale { multiplier_low: if below == 0 { 1 } else { below }, packed }
    }

    /// Returns whether readings are raw counter values rather than nanoseconds.
    pub(crate) const fn is_counted(&self) -> bool {
        self.packed & TickScale::RAW != 0
    }

    pub(crate) const fn scale(&self) -> u32 {
        let worth = (self.packed >> 8 & 63) as u32;
        // A fraction is at most 16, and a scale below 2^40 / 128.
        if worth < 48 { worth } else { 0 }
    }

    /// Returns the bits of a token's fraction, if the scale is not [by ticks](TickScale::by_ticks).
    pub(crate) const fn fraction(&self) -> u32 {
        let worth = (self.packed >> 8 & 63) as u32;
        if worth < 48 { 0 } else { 64 - worth }
    }

    /// Returns the scale with the same ticks, each worth one unit. A token may come within one
    /// tick.
    pub(crate) const fn by_ticks(&self) -> TickScale {
        TickScale { multiplier_low: self.multiplier_low, packed: self.packed & !0xff00 | TickScale::BY_TICKS }
    }

    /// Returns the scale with a part of a token beside it, in units below 2^16.
    pub(super) const fn with_part(self, part: u64) -> TickScale {
        // At most 26 bits are above the lower 16 of a scale.
        TickScale { packed: self.packed | part << TickScale::PART, ..self }
    }

    /// Returns the part of a token beside the scale.
    pub(super) const fn part(&self) -> u64 {
        self.packed >> TickScale::PART
    }

    /// Returns the scale without a part of a token beside it.
    pub(super) const fn without_part(self) -> TickScale {
        TickScale { packed: self.packed & ((1 << TickScale::PART) - 1), ..self }
    }

    /// Returns the scale with 2^16 ticks for each of a scale of at least 2^17 ns a tick.
    pub(crate) const fn in_parts(&self) -> TickScale {
        // A scale that is not known yet has no shift.
        TickScale { multiplier_low: self.multiplier_low, packed: self.packed.saturating_sub(16) }
    }

    const fn shift(&self) -> u32 {
        (self.packed & 63) as u32
    }

    const fn multiplier(&self) -> u128 {
        ((self.packed >> 16) as u128) << 64 | self.multiplier_low as u128
    }

    /// Returns the tick at a clock reading, modulo 2^64.
    ///
    /// No product wraps where `shift` is above 0: it is then below 2^126.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        let multiplier_low = ((nanos as u128 * self.multiplier_low as u128) >> 64) as u64;
        nanos.wrapping_mul(self.packed >> 16).wrapping_add(multiplier_low) >> self.shift()
    }

    /// Returns the part of its tick that has passed at a reading.
    ///
    /// The part is exact, in units of `2^-(64 + shift)` ticks.
    pub(super) const fn into(&self, nanos: u64) -> u128 {
        (nanos as u128).wrapping_mul(self.multiplier()) & (u128::MAX >> (64 - self.shift()))
    }

    /// Returns whether a tick has such a [part](TickScale::into).
    pub(super) const fn is_phase(&self, part: u128) -> bool {
        part >> 64 >> self.shift() == 0
    }

    /// Returns the ticks that end in `nanos` nanoseconds, less those that a tick of which the part
    /// `until` has passed had begun with. `from` is the part that had passed before.
    ///
    /// The result is rounded down: from now on it is never behind by more than a tick.
    pub(super) fn between(&self, from: u128, nanos: u64, until: u128) -> i64 {
        // 73 years. Where the whole part is above 1 the shift is 0, and each sum is below 2^127.
        let nanos = i128::from(nanos.min(1 << 61));
        let (whole, low) = (self.multiplier() >> 64, self.multiplier() & u128::from(u64::MAX));
        let parts = nanos * low.cast_signed() + from.cast_signed() - until.cast_signed();
        let ticks = match self.shift() {
            0 => nanos * whole.cast_signed() + (parts >> 64),
            shift => (((nanos * whole.cast_signed()) << 64) + parts) >> (64 + shift),
        };
        i64::try_from(ticks).unwrap_or(i64::MAX)
    }

    /// Returns whether a span of `nanos` may have `ticks` ticks.
    pub(crate) const fn may_count(&self, nanos: u64, ticks: u128) -> bool {
        nanos as u128 * ((self.multiplier() >> 64) + 1) >= ticks
    }

    /// Returns a span in whole ticks, rounded up.
    pub(crate) const fn ticks_in(&self, nanos: u64) -> u64 {
        // The multiplier is less than 1 too large, the product less than `nanos`.
        self.tick(nanos) + (self.into(nanos) >= nanos as u128) as u64
    }

    /// Returns the least time after the reading `nanos` at which the ticks earn `units` more, at
    /// most 2^63 of them. See [`nanos_until`](TickScale::nanos_until).
    pub(crate) fn nanos_for(&self, nanos: u64, units: u64) -> u64 {
        self.nanos_until(nanos, (units + ((1 << self.scale()) - 1)) >> self.scale())
    }

    /// Returns the least time after the reading `nanos` at which `ticks` more ticks have passed:
    /// one nanosecond earlier they have not.
    pub(crate) fn nanos_until(&self, nanos: u64, ticks: u64) -> u64 {
        if *self == TickScale::MONTHS {
            return calendar::month_start(calendar::month_at(nanos) + ticks).saturating_sub(nanos);
        }
        let bits = 64 + self.shift();
        // A wait is at most a fill time and a jitter window, well below 2^63 ns of 2^64 units each.
        // A debt from before a change to a slow quota may take longer; the result is then the
        // longest wait.
        let goal = match u128::from(ticks).checked_shl(bits) {
            Some(goal) if goal >> bits == u128::from(ticks) => goal,
            _ => return u64::MAX,
        };
        let wait = goal.saturating_sub(self.into(nanos)).div_ceil(self.multiplier());
        u64::try_from(wait).unwrap_or(u64::MAX)
    }
}
