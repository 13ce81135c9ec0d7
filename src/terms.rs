//! What a [`Quota`](crate::Quota) is compiled to, once: the widths of the word's fields, and the clock
//! that counts time in what it earns.
//!
//! One token is `2^fraction` units, and one tick is the time that earns `2^scale` units, so refilling
//! a bucket is adding ticks. `scale` is above 0 only for quotas so fast and large that no finer tick
//! leaves room for the stamp; `fraction` is 0 then.
//!
//! What holds of every compiled `Terms`:
//!
//! * the fields fill the word: `whole token bits + fraction + stamp bits = 64`;
//! * a level is at most `burst << fraction`, and the field's all-ones value is above every level;
//! * the stamp's range is at least 2^46 ns, and at least 64 times the time to fill the bucket or 2^62 ns;
//! * no sum or shift of the hot path overflows (proofs at the lines).

/// A burst is at most 2^40 tokens.
pub(crate) const MAX_BURST: u64 = 1 << 40;
/// A rate is at most 10^12 tokens a second, which is 1,000 a nanosecond.
pub(crate) const MAX_TOKENS_PER_NANO: u64 = 1_000;
/// A period, and the time to fill a bucket, are at most 2^62 ns (146 years).
pub(crate) const MAX_NANOS: u64 = 1 << 62;

/// Readings that are behind the stamp by up to this much are jitter between cores: 4 s.
const JITTER_NANOS: u64 = 4_000_000_000;
/// Readings that are behind by up to this much more are a clock that jumped back: 1 h.
const JUMP_NANOS: u64 = 3_600_000_000_000;
/// How long a bucket has been full before it may be evicted: 2 s, in case the evictor's clock is ahead.
pub(crate) const MARGIN_NANOS: u64 = 2_000_000_000;

/// Why a quota cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    NoTokens,
    NoPeriod,
    NoBurst,
    LongPeriod { nanos: u128 },
    LargeBurst { burst: u64 },
    FastRate { tokens: u64, nanos: u64 },
    SlowFill { tokens: u64, nanos: u64, burst: u64 },
    NoLayout { tokens: u64, nanos: u64, burst: u64 },
}

/// The clock that counts ticks: `tick = (ns * multiplier) >> (64 + shift)`, the multiplier rounded up.
///
/// The multiplier is `whole * 2^64 + part` and has at least 64 significant bits: either `shift` is 0
/// (at least half a tick a nanosecond) or the multiplier is at least 2^63. Rounding it up makes a whole
/// token's time count at least a whole token, so nobody is late; the excess is under a quarter of a
/// tick in 2^62 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickClock {
    part: u64,
    whole: u32,
    shift: u8,
}

impl TickClock {
    /// One tick a nanosecond.
    pub(crate) const NANOS: TickClock = TickClock { part: 0, whole: 1, shift: 0 };

    /// `tokens * 2^(fraction - scale)` ticks every `nanos`.
    const fn new(tokens: u64, nanos: u64, fraction: u32, scale: u32) -> Self {
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
        // At most 1,000 * 2^3 ticks a nanosecond (a faster tick leaves no range): `whole` fits.
        TickClock { part: quotient as u64, whole: (quotient >> 64) as u32, shift }
    }

    const fn multiplier(&self) -> u128 {
        (self.whole as u128) << 64 | self.part as u128
    }

    /// The tick at a clock reading, modulo 2^64.
    ///
    /// Where `shift` is above 0 nothing wraps: the product is then below 2^126.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        let part = ((nanos as u128 * self.part as u128) >> 64) as u64;
        nanos.wrapping_mul(self.whole as u64).wrapping_add(part) >> self.shift
    }

    /// The least time after the reading `nanos` at which `ticks` more ticks have passed: one
    /// nanosecond earlier they have not.
    pub(crate) fn nanos_until(&self, nanos: u64, ticks: u64) -> u64 {
        let bits = 64 + u32::from(self.shift);
        // How far into its tick the reading is, exact in units of 2^-bits ticks.
        let into = (u128::from(nanos).wrapping_mul(self.multiplier())) & (u128::MAX >> (128 - bits));
        // A wait is a fill time and a jitter window at most, well below 2^63 ns of 2^64 units each.
        let goal = match u128::from(ticks).checked_shl(bits) {
            Some(goal) if goal >> bits == u128::from(ticks) => goal,
            _ => return u64::MAX,
        };
        let wait = goal.saturating_sub(into).div_ceil(self.multiplier());
        u64::try_from(wait).unwrap_or(u64::MAX)
    }
}

/// The widths of the word's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bits of a token's fraction.
    pub(crate) fraction: u8,
    /// Binary logarithm of the units that one tick earns.
    pub(crate) scale: u8,
    /// Bits of the stamp; the tokens have the rest.
    pub(crate) stamp: u8,
}

impl Layout {
    /// The finest unit that leaves the stamp its range.
    const fn choose(tokens: u64, nanos: u64, burst: u64) -> Option<Layout> {
        // Ranges of 2.3 years, 13 days and 19 hours.
        const YEARS: u32 = 56;
        const DAYS: u32 = 50;
        const HOURS: u32 = 46;

        match Layout::fine(tokens, nanos, burst, YEARS) {
            None => {}
            found => return found,
        }
        match Layout::fine(tokens, nanos, burst, DAYS) {
            None => {}
            found => return found,
        }
        // A tick is worth several tokens, but at most this part of the bucket.
        match Layout::coarse(tokens, nanos, burst, DAYS, 256) {
            None => {}
            found => return found,
        }
        match Layout::coarse(tokens, nanos, burst, HOURS, 128) {
            None => Layout::fine(tokens, nanos, burst, HOURS),
            found => found,
        }
    }

    /// A tick that is a token's fraction, as fine as the range allows.
    const fn fine(tokens: u64, nanos: u64, burst: u64, range: u32) -> Option<Layout> {
        let mut fraction = 16;
        loop {
            let layout = Layout { fraction, scale: 0, stamp: Layout::stamp_bits(burst) - fraction };
            if layout.holds(tokens, nanos, burst, range) {
                return Some(layout);
            }
            if fraction == 0 {
                return None;
            }
            fraction -= 1;
        }
    }

    /// A tick that is worth several tokens, as few as the range allows, and at most one in `parts` of the bucket.
    const fn coarse(tokens: u64, nanos: u64, burst: u64, range: u32, parts: u64) -> Option<Layout> {
        let mut scale = 1;
        while burst >> scale >= parts {
            let layout = Layout { fraction: 0, scale, stamp: Layout::stamp_bits(burst) };
            if layout.holds(tokens, nanos, burst, range) {
                return Some(layout);
            }
            scale += 1;
        }
        None
    }

    /// What whole tokens leave of the word: 23 bits at least.
    const fn stamp_bits(burst: u64) -> u8 {
        (burst + 1).leading_zeros() as u8
    }

    /// Whether the stamp's range is at least `2^range` ns, and 64 fill times or 2^62 ns.
    const fn holds(&self, tokens: u64, nanos: u64, burst: u64, range: u32) -> bool {
        // The range is 2^(stamp + scale - fraction) token times of nanos / tokens each, and
        // the bucket fills in `burst` of them.
        let exponent = self.stamp as i32 + self.scale as i32 - self.fraction as i32;
        let many_fills = exponent >= 46 || (exponent >= 0 && 1 << exponent >= burst * 64);
        at_least(nanos, tokens, exponent - range as i32)
            && (many_fills || at_least(nanos, tokens, exponent - 62))
    }
}

/// `nanos * 2^exponent >= tokens`, without overflow.
const fn at_least(nanos: u64, tokens: u64, exponent: i32) -> bool {
    if exponent >= 64 {
        true
    } else if exponent >= 0 {
        (nanos as u128) << exponent >= tokens as u128
    } else if exponent > -64 {
        nanos as u128 >= (tokens as u128) << -exponent
    } else {
        false
    }
}

/// A compiled quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ticks: TickClock,
    /// `2^stamp - 1`.
    pub(crate) mask: u64,
    /// The level of a full bucket, in units.
    pub(crate) capacity: u64,
    /// From this many ticks on, a difference to the stamp is not time that passed: the clock is back.
    pub(crate) horizon: u64,
    /// From this many on, it is jitter.
    pub(crate) jitter: u64,
    pub(crate) layout: Layout,
    pub(crate) burst: u64,
    /// How long, in ticks, a bucket stays after it is full.
    pub(crate) margin: u64,
}

impl Terms {
    pub(crate) const fn compile(tokens: u64, nanos: u64, burst: u64) -> Result<Terms, Flaw> {
        if tokens == 0 {
            return Err(Flaw::NoTokens);
        }
        if nanos == 0 {
            return Err(Flaw::NoPeriod);
        }
        if burst == 0 {
            return Err(Flaw::NoBurst);
        }
        if nanos > MAX_NANOS {
            return Err(Flaw::LongPeriod { nanos: nanos as u128 });
        }
        if burst > MAX_BURST {
            return Err(Flaw::LargeBurst { burst });
        }
        if tokens as u128 > nanos as u128 * MAX_TOKENS_PER_NANO as u128 {
            return Err(Flaw::FastRate { tokens, nanos });
        }
        // Below 2^102 and 2^126.
        if burst as u128 * nanos as u128 > MAX_NANOS as u128 * tokens as u128 {
            return Err(Flaw::SlowFill { tokens, nanos, burst });
        }
        match Layout::choose(tokens, nanos, burst) {
            Some(layout) => Ok(Terms::with_layout(tokens, nanos, burst, layout)),
            None => Err(Flaw::NoLayout { tokens, nanos, burst }),
        }
    }

    /// The terms in a given layout: the one `compile` chose, or a tiny one that a test enumerates.
    pub(crate) const fn with_layout(tokens: u64, nanos: u64, burst: u64, layout: Layout) -> Terms {
        let Layout { fraction, scale, stamp } = layout;
        let range = 1_u64 << stamp;
        // `span` in whole ticks, exact and rounded up, at most one in `share` of the range, at least `least`.
        // The product is below 2^42 * 2^64 * 2^16.
        const fn span(span: u64, tokens: u64, nanos: u64, layout: Layout) -> u64 {
            let numerator = (span as u128 * tokens as u128) << layout.fraction;
            let ticks = numerator.div_ceil((nanos as u128) << layout.scale);
            if ticks > u64::MAX as u128 / 4 { u64::MAX / 4 } else { ticks as u64 }
        }
        const fn clamp(ticks: u64, most: u64) -> u64 {
            let ticks = if ticks > most { most } else { ticks };
            // Rounded to nothing the window would vanish for slow quotas.
            if ticks < 2 { 2 } else { ticks }
        }
        let behind = clamp(span(JITTER_NANOS, tokens, nanos, layout), range.div_ceil(4096));
        let back = clamp(span(JUMP_NANOS, tokens, nanos, layout), range.div_ceil(64));
        Terms {
            ticks: TickClock::new(tokens, nanos, fraction as u32, scale as u32),
            mask: range - 1,
            capacity: burst << fraction,
            horizon: range - behind - back,
            jitter: range - behind,
            layout,
            burst,
            margin: span(MARGIN_NANOS, tokens, nanos, layout) + 1,
        }
    }

    /// The units that `n` tokens cost, or nothing if the bucket never holds so many.
    #[inline]
    pub(crate) const fn need(&self, n: u64) -> Option<u64> {
        // `n <= burst`, whose units fit in the tokens field.
        if n <= self.burst { Some(n << self.layout.fraction) } else { None }
    }

    /// Whole tokens in `units`.
    #[inline]
    pub(crate) const fn tokens(&self, units: u64) -> u64 {
        units >> self.layout.fraction
    }

    /// Ticks that earn at least `units`.
    #[inline]
    pub(crate) const fn ticks_for(&self, units: u64) -> u64 {
        // Units are below 2^57 (the stamp has 7 bits or more): the sum does not wrap.
        (units + (1 << self.layout.scale) - 1) >> self.layout.scale
    }
}
