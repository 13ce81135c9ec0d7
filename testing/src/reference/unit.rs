//! The units of `docs/design.md`, chosen by its rules spelled out.

/// The layout of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// A token is 2^fraction units.
    pub fraction: u32,
    /// A tick earns 2^scale units.
    pub scale: u32,
    /// Bits of the stamp.
    pub stamp: u32,
    /// Tokens of debt that there is room for.
    pub debt: u64,
    /// Whether the debt was asked for, or is the tokens of 10 ms: then it is not bounded by the
    /// burst as well.
    pub fixed: bool,
}

/// Tokens, period in ns, burst.
pub type Asked = (u64, u64, u64);

/// Returns the bits of a word beside the whole tokens up to `burst`.
fn rest_of_the_word(burst: u64) -> u32 {
    64 - (u64::BITS - (burst + 1).leading_zeros())
}

/// Returns whether a bucket of `burst` tokens fills within 2^62 ns.
fn fills((tokens, nanos, _): Asked, burst: u64) -> bool {
    u128::from(burst) * u128::from(nanos) <= u128::from(tokens) << 62
}

impl Unit {
    /// Returns the unit of an accepted quota.
    pub fn choose(tokens: u64, nanos: u64, burst: u64) -> Option<Unit> {
        Unit::with_room((tokens, nanos, burst), None, None)
    }

    /// Returns the unit of a quota that may become `head`, with a bound on debt if it was asked
    /// for.
    pub fn with_room(quota: Asked, head: Option<Asked>, max_debt: Option<u64>) -> Option<Unit> {
        let asked = [quota, head.unwrap_or(quota)];
        let rate = |(tokens, _, _): Asked, other: Asked| u128::from(tokens) * u128::from(other.1);
        let fastest = if rate(asked[1], asked[0]) > rate(asked[0], asked[1]) { asked[1] } else { asked[0] };
        let largest = asked[0].2.max(asked[1].2);
        let smallest = asked[0].2.min(asked[1].2);
        if let Some(debt) = max_debt {
            let fit = debt <= 1 << 40 && asked.iter().all(|quota| fills(*quota, quota.2 + debt));
            let unit = fit.then(|| Unit::of_levels(fastest, largest + debt, smallest)).flatten()?;
            return Some(Unit { debt, fixed: true, ..unit });
        }
        let unit = Unit::of_levels(fastest, largest, smallest)?;
        let indebted = Unit { stamp: rest_of_the_word(2 * largest) - unit.fraction, debt: largest, ..unit };
        let fill = asked.iter().all(|quota| fills(*quota, 2 * quota.2));
        let room = fill && indebted.holds(fastest, 2 * largest, 46);
        if !room {
            return Some(unit);
        }
        // The tokens of 10 ms, or a half, a quarter and so on, if a range of 2^50 ns is left.
        let short = u64::try_from(u128::from(quota.0) * 10_000_000 / u128::from(quota.1)).unwrap_or(u64::MAX);
        let halves = (0..64).map(|halves| short >> halves).take_while(|debt| *debt > largest);
        let with_debt = |debt| Unit {
            stamp: rest_of_the_word(largest + debt) - unit.fraction,
            debt,
            fixed: true,
            ..unit
        };
        let fits = |debt: &u64| {
            asked.iter().all(|quota| fills(*quota, quota.2 + debt))
                && with_debt(*debt).holds(fastest, largest + debt, 50)
        };
        Some(halves.into_iter().find(fits).map_or(indebted, with_debt))
    }

    /// Returns a unit for levels up to `burst`, in which a tick is a small part of `least` tokens.
    fn of_levels(fastest: Asked, burst: u64, least: u64) -> Option<Unit> {
        let rest = rest_of_the_word(burst);
        let unit = |fraction, scale, stamp| Unit { fraction, scale, stamp, debt: 0, fixed: false };
        let fine = |range| {
            let finest_first = (0..=16).rev().map(|fraction| unit(fraction, 0, rest - fraction));
            finest_first.into_iter().find(|unit| unit.holds(fastest, burst, range))
        };
        let coarse = |range, parts: u64| {
            (1..40)
                .map(|scale| unit(0, scale, rest))
                .filter(|unit| parts << unit.scale <= least)
                .find(|unit| unit.holds(fastest, burst, range))
        };
        fine(56)
            .or_else(|| fine(50))
            .or_else(|| coarse(50, 256))
            .or_else(|| coarse(46, 128))
            .or_else(|| fine(46))
    }

    /// Returns whether a word in this unit takes a sound quota. The levels must fit, a tick is at
    /// most 1/128 of a bucket, and the stamp's range is long enough.
    pub fn takes(&self, quota @ (_, _, burst): Asked) -> bool {
        let debt = if self.fixed { self.debt } else { self.debt.min(burst) };
        // The reserved words are above every level.
        let levels = (u64::MAX >> self.stamp) - 1;
        fills(quota, burst + debt)
            && u128::from(burst + self.debt) << self.fraction <= u128::from(levels)
            && (self.scale == 0 || burst >= 128 << self.scale)
            && self.holds(quota, burst + self.debt, 46)
    }

    /// Returns whether the stamp's range is at least 2^range ns, and 64 fill times or 2^62 ns.
    pub fn holds(&self, quota: Asked, burst: u64, range: u32) -> bool {
        self.range_is_at_least(quota, range)
            && (self.range_is_fills(burst) || self.range_is_at_least(quota, 62))
    }

    /// Returns whether `2^(stamp + scale) / 2^fraction` token times are at least 2^least ns.
    fn range_is_at_least(&self, (tokens, nanos, _): Asked, least: u32) -> bool {
        let range = u128::from(nanos).checked_mul(1 << (self.stamp + self.scale));
        let wanted = (1_u128 << (least + self.fraction)).checked_mul(u128::from(tokens));
        match (range, wanted) {
            (Some(range), Some(wanted)) => range >= wanted,
            (range, _) => range.is_none(),
        }
    }

    fn range_is_fills(&self, burst: u64) -> bool {
        1_u128 << (self.stamp + self.scale) >= (u128::from(burst) * 64) << self.fraction
    }
}
