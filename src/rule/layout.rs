//! The bounds of quotas, and the widths of a word's fields.
//!
//! One token is `2^fraction` units, and one tick is the time that earns `2^scale` units, so
//! refilling a bucket is adding ticks. `scale` is above 0 only for quotas so fast and large that no
//! finer tick leaves room for the stamp; `fraction` is 0 then.
//!
//! Invariants of every layout, for every quota that it accepts:
//!
//! * the fields fill the word: `whole token bits + fraction + stamp bits = 64`;
//! * a level is at most `(burst + debt) << fraction`, and the field's all-ones value is above every
//!   level;
//! * the stamp's range is at least 2^46 ns, and at least 64 times the time to fill the bucket from
//!   its deepest debt or 2^62 ns.

use crate::rule::counts::CountWidths;

/// A burst is at most 2^40 tokens.
pub(crate) const MAX_BURST: u64 = 1 << 40;
/// A rate is at most 10^12 tokens a second, which is 1,000 a nanosecond.
pub(crate) const MAX_TOKENS_PER_NANO: u64 = 1_000;
/// A period, and the time to fill a bucket, are at most 2^62 ns (146 years).
pub(crate) const MAX_NANOS: u64 = 1 << 62;

/// The reason why a quota cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaError {
    NoTokens,
    NoPeriod,
    NoBurst,
    /// The period in nanoseconds.
    LongPeriod(u128),
    LargeBurst(u64),
    LargeDebt(u64),
    /// The burst is not below the limit of a period: the burst, and the limit.
    BurstOfLimit(u64, u64),
    FastRate(RawQuota),
    SlowFill(RawQuota),
    NoLayout(RawQuota),
    /// The tokens field of a word whose layout is fixed is too narrow: the burst, and the largest.
    BurstTooWide(u64, u64),
    /// The stamp of a word whose layout is fixed wraps too early.
    RangeTooShort(RawQuota),
    /// A tick of a word whose layout is fixed is worth too many tokens: the burst, and the least.
    TickTooCoarse(u64, u64),
    /// A tick of the limiter is worth too much of the plan's bucket.
    PlanTickTooCoarse(RawQuota),
    /// The plan's bucket fills in more than a 64th of the stamp's range.
    PlanFillsTooSlowly(RawQuota),
}

/// A rate and a burst, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawQuota {
    pub(crate) tokens: u64,
    pub(crate) nanos: u64,
    pub(crate) burst: u64,
}

impl RawQuota {
    /// Checks the bounds of every quota, independent of the word.
    const fn check(self) -> Result<(), QuotaError> {
        let RawQuota { tokens, nanos, burst } = self;
        if tokens == 0 {
            return Err(QuotaError::NoTokens);
        }
        if nanos == 0 {
            return Err(QuotaError::NoPeriod);
        }
        if burst == 0 {
            return Err(QuotaError::NoBurst);
        }
        if nanos > MAX_NANOS {
            return Err(QuotaError::LongPeriod(nanos as u128));
        }
        if burst > MAX_BURST {
            return Err(QuotaError::LargeBurst(burst));
        }
        if tokens as u128 > nanos as u128 * MAX_TOKENS_PER_NANO as u128 {
            return Err(QuotaError::FastRate(self));
        }
        self.fills(burst)
    }

    /// Returns the faster rate of two quotas, with the larger burst.
    pub(crate) fn widest(self, other: RawQuota) -> RawQuota {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let faster = product(other.tokens, self.nanos) > product(self.tokens, other.nanos);
        RawQuota { burst: self.burst.max(other.burst), ..if faster { other } else { self } }
    }

    /// Checks that a bucket of `burst` tokens, below 2^42, fills within `MAX_NANOS`.
    const fn fills(self, burst: u64) -> Result<(), QuotaError> {
        let RawQuota { tokens, nanos, .. } = self;
        // Below 2^104 and 2^126.
        if burst as u128 * nanos as u128 > MAX_NANOS as u128 * tokens as u128 {
            return Err(QuotaError::SlowFill(RawQuota { burst, ..self }));
        }
        Ok(())
    }

    /// Returns the whole tokens of a time, at most those of a second at the fastest rate.
    const fn tokens_in(self, nanos: u64) -> u64 {
        // A rate is at most 1,000 tokens a nanosecond.
        (self.tokens as u128 * nanos as u128 / self.nanos as u128) as u64
    }

    const fn no_layout(self, burst: u64) -> QuotaError {
        QuotaError::NoLayout(RawQuota { burst, ..self })
    }
}

/// The options of a layout beside its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayoutOptions {
    /// A quota that the word may be changed to.
    pub(crate) headroom: Option<RawQuota>,
    /// Tokens that may be promised to waiting callers. The default is one burst, or the tokens of
    /// 10 ms if these are more, where the word has room for it.
    pub(crate) max_debt: Option<u64>,
}

impl LayoutOptions {
    pub(crate) const DEFAULT: LayoutOptions = LayoutOptions { headroom: None, max_debt: None };
}

/// Ranges of the stamp, as logarithms of nanoseconds: 2.3 years, 13 days and 19 hours.
const YEARS: u32 = 56;
const DAYS: u32 = 50;
const HOURS: u32 = 46;
/// The time whose tokens may be promised by default, if they are more than a burst: 10 ms.
const SHORT: u64 = 10_000_000;
/// Least number of ticks in a bucket: a tick is worth at most 1/128 of it.
const COARSEST: u64 = 128;

/// The widths of the word's fields, small enough for one register on the hot path.
///
/// Aligned, so that they are copied as one word. As seven bytes they were copied as two overlapping
/// halves, and each copy waited for the one before it.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    /// Bits of a token's fraction.
    pub(crate) fraction: u8,
    /// Binary logarithm of the units that one tick earns.
    pub(crate) scale: u8,
    /// Bits of the stamp; the tokens have the rest.
    pub(crate) stamp: u8,
    /// True if the bound on debt is that of the layout: the caller chose it, or it is the tokens of
    /// 10 ms. Otherwise it is one burst of the present quota.
    pub(crate) fixed_debt: bool,
    /// The counts of a window, instead of a level.
    pub(crate) counts: CountWidths,
}

/// The widths and the debt that are fixed as long as a bucket exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) widths: Widths,
    /// Tokens of debt that there is room for.
    pub(crate) debt: u64,
}

impl Layout {
    /// Returns the layout of a word for a quota and its options.
    pub(crate) const fn of(quota: RawQuota, room: LayoutOptions) -> Result<Layout, QuotaError> {
        if let Err(flaw) = quota.check() {
            return Err(flaw);
        }
        // The fastest rate, the largest burst and the smallest.
        let (mut fast, mut burst, mut least) = (quota, quota.burst, quota.burst);
        if let Some(head) = room.headroom {
            if let Err(flaw) = head.check() {
                return Err(flaw);
            }
            if head.tokens as u128 * fast.nanos as u128 > fast.tokens as u128 * head.nanos as u128 {
                fast = head;
            }
            burst = if head.burst > burst { head.burst } else { burst };
            least = if head.burst < least { head.burst } else { least };
        }
        if let Some(debt) = room.max_debt {
            if debt > MAX_BURST {
                return Err(QuotaError::LargeDebt(debt));
            }
            if let Err(flaw) = quota.fills(quota.burst + debt) {
                return Err(flaw);
            }
            if let Some(head) = room.headroom
                && let Err(flaw) = head.fills(head.burst + debt)
            {
                return Err(flaw);
            }
            return match Widths::choose(fast.tokens, fast.nanos, burst + debt, least) {
                Some(widths) => Ok(Layout { widths: Widths { fixed_debt: true, ..widths }, debt }),
                None => Err(fast.no_layout(burst + debt)),
            };
        }
        let Some(widths) = Widths::choose(fast.tokens, fast.nanos, burst, least) else {
            return Err(fast.no_layout(burst));
        };
        // The unit is chosen for the burst. Room for a debt of one burst shortens the stamp's
        // range, never the unit. If the range gets too short there is no room for debt.
        let wide = Widths { stamp: Widths::stamp_bits(2 * burst) - widths.fraction, ..widths };
        let head = match room.headroom {
            Some(head) => head,
            None => quota,
        };
        let fills = quota.fills(2 * quota.burst).is_ok() && head.fills(2 * head.burst).is_ok();
        if !fills || !wide.holds(fast.tokens, fast.nanos, 2 * burst, HOURS) {
            return Ok(Layout { widths, debt: 0 });
        }
        // A timer may be late by milliseconds. So that callers in line have their places by then,
        // the tokens of 10 ms may be promised, as far as the range stays of days.
        let mut debt = quota.tokens_in(SHORT);
        while debt > burst {
            let stamp = Widths::stamp_bits(burst + debt) - widths.fraction;
            let wide = Widths { stamp, fixed_debt: true, ..widths };
            let fills = quota.fills(quota.burst + debt).is_ok() && head.fills(head.burst + debt).is_ok();
            if fills && wide.holds(fast.tokens, fast.nanos, burst + debt, DAYS) {
                return Ok(Layout { widths: wide, debt });
            }
            debt /= 2;
        }
        Ok(Layout { widths: wide, debt: burst })
    }

    /// Returns the largest burst that fits into the tokens field.
    pub(crate) const fn most_burst(&self) -> u64 {
        // The field's all-ones value is above every level.
        (((u64::MAX >> self.widths.stamp) - 1) >> self.widths.fraction) - self.debt
    }

    /// Checks that a word which has this layout already can hold a quota.
    pub(crate) const fn check(&self, quota: RawQuota) -> Result<(), QuotaError> {
        let (Widths { scale, fixed_debt, .. }, RawQuota { tokens, nanos, burst }) = (self.widths, quota);
        if let Err(flaw) = quota.check() {
            return Err(flaw);
        }
        let most = self.most_burst();
        if burst > most {
            return Err(QuotaError::BurstTooWide(burst, most));
        }
        let debt = if fixed_debt || self.debt < burst { self.debt } else { burst };
        if let Err(flaw) = quota.fills(burst + debt) {
            return Err(flaw);
        }
        if scale > 0 && burst >> scale < COARSEST {
            return Err(QuotaError::TickTooCoarse(burst, COARSEST << scale));
        }
        if !self.widths.holds(tokens, nanos, burst + self.debt, HOURS) {
            return Err(QuotaError::RangeTooShort(quota));
        }
        Ok(())
    }
}

impl Widths {
    /// Returns the finest unit that leaves the stamp its range, for levels up to `burst`, where no
    /// burst is below `least`.
    const fn choose(tokens: u64, nanos: u64, burst: u64, least: u64) -> Option<Widths> {
        match Widths::fine(tokens, nanos, burst, YEARS) {
            None => {}
            found => return found,
        }
        match Widths::fine(tokens, nanos, burst, DAYS) {
            None => {}
            found => return found,
        }
        // A tick is worth several tokens, at most this part of the bucket.
        match Widths::coarse(tokens, nanos, burst, DAYS, least / 256) {
            None => {}
            found => return found,
        }
        match Widths::coarse(tokens, nanos, burst, HOURS, least / COARSEST) {
            None => Widths::fine(tokens, nanos, burst, HOURS),
            found => found,
        }
    }

    const fn plain(fraction: u8, scale: u8, stamp: u8) -> Widths {
        Widths { fraction, scale, stamp, fixed_debt: false, counts: CountWidths::BUCKET }
    }

    /// Returns widths whose tick is a token's fraction, as fine as the range allows.
    const fn fine(tokens: u64, nanos: u64, burst: u64, range: u32) -> Option<Widths> {
        let mut fraction = 16;
        loop {
            let widths = Widths::plain(fraction, 0, Widths::stamp_bits(burst) - fraction);
            if widths.holds(tokens, nanos, burst, range) {
                return Some(widths);
            }
            if fraction == 0 {
                return None;
            }
            fraction -= 1;
        }
    }

    /// Returns widths whose tick is worth several tokens, as few as the range allows, at most
    /// `most`.
    const fn coarse(tokens: u64, nanos: u64, burst: u64, range: u32, most: u64) -> Option<Widths> {
        let mut scale = 1;
        while 1 << scale <= most {
            let widths = Widths::plain(0, scale, Widths::stamp_bits(burst));
            if widths.holds(tokens, nanos, burst, range) {
                return Some(widths);
            }
            scale += 1;
        }
        None
    }

    /// Returns the bits that whole tokens leave of the word: at least 22.
    const fn stamp_bits(burst: u64) -> u8 {
        (burst + 1).leading_zeros() as u8
    }

    /// Returns whether the stamp's range is at least `2^range` ns, and 64 fill times or 2^62 ns.
    const fn holds(&self, tokens: u64, nanos: u64, burst: u64, range: u32) -> bool {
        // The range is 2^(stamp + scale - fraction) token times of nanos / tokens each, and
        // the bucket fills in `burst` of them, at most 2^41.
        let exponent = self.stamp as i32 + self.scale as i32 - self.fraction as i32;
        let many_fills = exponent >= 47 || (exponent >= 0 && 1 << exponent >= burst * 64);
        at_least(nanos, tokens, exponent - range as i32)
            && (many_fills || at_least(nanos, tokens, exponent - 62))
    }
}

/// Returns whether `nanos * 2^exponent >= tokens`, without overflow.
pub(super) const fn at_least(nanos: u64, tokens: u64, exponent: i32) -> bool {
    // At most 16: a stamp has 62 bits or less, and the least range is 2^46 ns.
    if exponent >= 0 {
        (nanos as u128) << exponent >= tokens as u128
    } else if exponent > -64 {
        nanos as u128 >= (tokens as u128) << -exponent
    } else {
        false
    }
}
