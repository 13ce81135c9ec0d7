//! What a [`Quota`](crate::Quota) is compiled to, once: the widths of the word's fields, and the clock
//! that counts time in what it earns.
//!
//! One token is `2^fraction` units, and one tick is the time that earns `2^scale` units, so refilling
//! a bucket is adding ticks. `scale` is above 0 only for quotas so fast and large that no finer tick
//! leaves room for the stamp; `fraction` is 0 then.
//!
//! A bucket may be in debt to those who wait. Its field holds what is in it and the most debt together, so
//! that it is never negative; the [`floor`](Terms::floor) is where it is empty.
//!
//! What holds of every compiled `Terms`:
//!
//! * the fields fill the word: `whole token bits + fraction + stamp bits = 64`;
//! * a level is at most `(burst + debt) << fraction`, and the field's all-ones value is above every level;
//! * the stamp's range is at least 2^46 ns, and at least 64 times the time to fill the bucket from its deepest debt
//!   or 2^62 ns;
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
    LongPeriod {
        nanos: u128,
    },
    LargeBurst {
        burst: u64,
    },
    FastRate {
        tokens: u64,
        nanos: u64,
    },
    SlowFill {
        tokens: u64,
        nanos: u64,
        burst: u64,
    },
    NoLayout {
        tokens: u64,
        nanos: u64,
        burst: u64,
    },
    LargeDebt {
        debt: u64,
    },
    /// The tokens field of a word whose layout is fixed is too narrow.
    Narrow {
        burst: u64,
        most: u64,
    },
    /// The stamp of a word whose layout is fixed wraps too early.
    Brief {
        tokens: u64,
        nanos: u64,
    },
    /// A tick of a layout that is fixed is worth too many tokens.
    Coarse {
        burst: u64,
        least: u64,
    },
    /// A tick of the limiter is worth too much of the plan's bucket.
    CoarsePlan {
        tokens: u64,
        nanos: u64,
        burst: u64,
    },
    /// The plan's bucket fills in more than a 64th of the stamp's range.
    SlowPlan {
        tokens: u64,
        nanos: u64,
        burst: u64,
    },
}

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
    const fn ticks_in(&self, nanos: u64) -> u64 {
        // The multiplier is less than 1 too large, the product less than `nanos`.
        self.tick(nanos) + (self.into(nanos) >= nanos as u128) as u64
    }

    /// The least time after the reading `nanos` at which `ticks` more ticks have passed: one
    /// nanosecond earlier they have not.
    pub(crate) fn nanos_until(&self, nanos: u64, ticks: u64) -> u64 {
        let bits = 64 + self.shift();
        // A wait is a fill time and a jitter window at most, well below 2^63 ns of 2^64 units each.
        let goal = match u128::from(ticks).checked_shl(bits) {
            Some(goal) if goal >> bits == u128::from(ticks) => goal,
            _ => return u64::MAX,
        };
        let wait = goal.saturating_sub(self.into(nanos)).div_ceil(self.multiplier());
        u64::try_from(wait).unwrap_or(u64::MAX)
    }
}

/// A rate and a burst, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbers {
    pub(crate) tokens: u64,
    pub(crate) nanos: u64,
    pub(crate) burst: u64,
}

impl Numbers {
    /// The bounds of every quota, whatever the word.
    const fn check(self) -> Result<(), Flaw> {
        let Numbers { tokens, nanos, burst } = self;
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
        self.fills(burst)
    }

    /// Whether a bucket of so many tokens, below 2^42, fills in time.
    const fn fills(self, burst: u64) -> Result<(), Flaw> {
        let Numbers { tokens, nanos, .. } = self;
        // Below 2^104 and 2^126.
        if burst as u128 * nanos as u128 > MAX_NANOS as u128 * tokens as u128 {
            return Err(Flaw::SlowFill { tokens, nanos, burst });
        }
        Ok(())
    }

    const fn no_layout(self, burst: u64) -> Flaw {
        Flaw::NoLayout { tokens: self.tokens, nanos: self.nanos, burst }
    }
}

/// What a word is to hold beside its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// A quota that it may be changed to.
    pub(crate) headroom: Option<Numbers>,
    /// Tokens that may be promised ahead; by default one burst, where the word has room for it.
    pub(crate) max_debt: Option<u64>,
}

impl Room {
    pub(crate) const DEFAULT: Room = Room { headroom: None, max_debt: None };
}

/// Ranges of the stamp, as logarithms of nanoseconds: 2.3 years, 13 days and 19 hours.
const YEARS: u32 = 56;
const DAYS: u32 = 50;
const HOURS: u32 = 46;
/// A tick is worth at most this part of a bucket.
const COARSEST: u64 = 128;

/// The widths of the word's fields. They fit into a register, which the hot path is glad of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bits of a token's fraction.
    pub(crate) fraction: u8,
    /// Binary logarithm of the units that one tick earns.
    pub(crate) scale: u8,
    /// Bits of the stamp; the tokens have the rest.
    pub(crate) stamp: u8,
    /// The most debt was asked for; else it is one burst, whatever the quota becomes.
    pub(crate) fixed_debt: bool,
}

/// What is fixed for the life of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) layout: Layout,
    /// Tokens of debt that there is room for.
    pub(crate) debt: u64,
}

impl Frame {
    /// The frame of a word for a quota, and for what else it is to hold.
    pub(crate) const fn of(quota: Numbers, room: Room) -> Result<Frame, Flaw> {
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
                return Err(Flaw::LargeDebt { debt });
            }
            if let Err(flaw) = quota.fills(quota.burst + debt) {
                return Err(flaw);
            }
            if let Some(head) = room.headroom
                && let Err(flaw) = head.fills(head.burst + debt)
            {
                return Err(flaw);
            }
            return match Layout::choose(fast.tokens, fast.nanos, burst + debt, least) {
                Some(layout) => Ok(Frame { layout: Layout { fixed_debt: true, ..layout }, debt }),
                None => Err(fast.no_layout(burst + debt)),
            };
        }
        let Some(layout) = Layout::choose(fast.tokens, fast.nanos, burst, least) else {
            return Err(fast.no_layout(burst));
        };
        // The unit is chosen for the burst. Room for as much debt is at the cost of the stamp's range, never of the
        // unit; if the range is too short for that there is none.
        let wide = Layout { stamp: Layout::stamp_bits(2 * burst) - layout.fraction, ..layout };
        let head = match room.headroom {
            Some(head) => head,
            None => quota,
        };
        let fills = quota.fills(2 * quota.burst).is_ok() && head.fills(2 * head.burst).is_ok();
        if fills && wide.holds(fast.tokens, fast.nanos, 2 * burst, HOURS) {
            Ok(Frame { layout: wide, debt: burst })
        } else {
            Ok(Frame { layout, debt: 0 })
        }
    }

    /// The largest burst that fits into the tokens field.
    pub(crate) const fn most_burst(&self) -> u64 {
        // The field's all-ones value is above every level.
        (((u64::MAX >> self.layout.stamp) - 1) >> self.layout.fraction) - self.debt
    }

    /// Whether a quota can be held, by a word that has this frame already.
    pub(crate) const fn check(&self, quota: Numbers) -> Result<(), Flaw> {
        let (Layout { scale, fixed_debt, .. }, Numbers { tokens, nanos, burst }) = (self.layout, quota);
        if let Err(flaw) = quota.check() {
            return Err(flaw);
        }
        let most = self.most_burst();
        if burst > most {
            return Err(Flaw::Narrow { burst, most });
        }
        let debt = if fixed_debt || self.debt < burst { self.debt } else { burst };
        if let Err(flaw) = quota.fills(burst + debt) {
            return Err(flaw);
        }
        if scale > 0 && burst >> scale < COARSEST {
            return Err(Flaw::Coarse { burst, least: COARSEST << scale });
        }
        if !self.layout.holds(tokens, nanos, burst + self.debt, HOURS) {
            return Err(Flaw::Brief { tokens, nanos });
        }
        Ok(())
    }
}

impl Layout {
    /// The finest unit that leaves the stamp its range, for levels up to `burst`, where none is smaller than `least`.
    const fn choose(tokens: u64, nanos: u64, burst: u64, least: u64) -> Option<Layout> {
        match Layout::fine(tokens, nanos, burst, YEARS) {
            None => {}
            found => return found,
        }
        match Layout::fine(tokens, nanos, burst, DAYS) {
            None => {}
            found => return found,
        }
        // A tick is worth several tokens, but at most this part of the bucket.
        match Layout::coarse(tokens, nanos, burst, DAYS, least / 256) {
            None => {}
            found => return found,
        }
        match Layout::coarse(tokens, nanos, burst, HOURS, least / COARSEST) {
            None => Layout::fine(tokens, nanos, burst, HOURS),
            found => found,
        }
    }

    const fn plain(fraction: u8, scale: u8, stamp: u8) -> Layout {
        Layout { fraction, scale, stamp, fixed_debt: false }
    }

    /// A tick that is a token's fraction, as fine as the range allows.
    const fn fine(tokens: u64, nanos: u64, burst: u64, range: u32) -> Option<Layout> {
        let mut fraction = 16;
        loop {
            let layout = Layout::plain(fraction, 0, Layout::stamp_bits(burst) - fraction);
            if layout.holds(tokens, nanos, burst, range) {
                return Some(layout);
            }
            if fraction == 0 {
                return None;
            }
            fraction -= 1;
        }
    }

    /// A tick that is worth several tokens, as few as the range allows, and at most so many.
    const fn coarse(tokens: u64, nanos: u64, burst: u64, range: u32, most: u64) -> Option<Layout> {
        let mut scale = 1;
        while 1 << scale <= most {
            let layout = Layout::plain(0, scale, Layout::stamp_bits(burst));
            if layout.holds(tokens, nanos, burst, range) {
                return Some(layout);
            }
            scale += 1;
        }
        None
    }

    /// What whole tokens leave of the word: 22 bits at least.
    const fn stamp_bits(burst: u64) -> u8 {
        (burst + 1).leading_zeros() as u8
    }

    /// Whether the stamp's range is at least `2^range` ns, and 64 fill times or 2^62 ns.
    const fn holds(&self, tokens: u64, nanos: u64, burst: u64, range: u32) -> bool {
        // The range is 2^(stamp + scale - fraction) token times of nanos / tokens each, and
        // the bucket fills in `burst` of them, at most 2^41.
        let exponent = self.stamp as i32 + self.scale as i32 - self.fraction as i32;
        let many_fills = exponent >= 47 || (exponent >= 0 && 1 << exponent >= burst * 64);
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
    pub(crate) layout: Layout,
    pub(crate) ticks: TickClock,
    /// Added to the clock's ticks: what its rate was before makes a difference for ever.
    pub(crate) base: u64,
    /// `2^stamp - 1`.
    pub(crate) mask: u64,
    /// The level of an empty bucket, in units. Below it the bucket is in debt.
    pub(crate) floor: u64,
    /// The level of a full bucket.
    pub(crate) capacity: u64,
    /// From this many ticks on, a difference to the stamp is not time that passed: the clock is back.
    pub(crate) horizon: u64,
}

impl Terms {
    #[cfg(test)]
    pub(crate) const fn compile(quota: Numbers, room: Room) -> Result<Terms, Flaw> {
        match Frame::of(quota, room) {
            Ok(frame) => Ok(Terms::in_frame(quota, frame)),
            Err(flaw) => Err(flaw),
        }
    }

    /// The terms in a given frame: the one of the word, or a tiny one that a test enumerates.
    pub(crate) const fn in_frame(quota: Numbers, Frame { layout, debt }: Frame) -> Terms {
        let Numbers { tokens, nanos, burst } = quota;
        let range = 1_u64 << layout.stamp;
        let ticks = TickClock::new(tokens, nanos, layout.fraction as u32, layout.scale as u32);
        let mut terms = Terms {
            layout,
            ticks,
            base: 0,
            mask: range - 1,
            floor: debt << layout.fraction,
            capacity: (debt + burst) << layout.fraction,
            horizon: 0,
        };
        let back = at_least_2(ticks.ticks_in(JUMP_NANOS), range.div_ceil(64));
        terms.horizon = terms.jitter() - back;
        terms
    }

    /// These terms where a faster rate has gone before. Its stamps may be ahead by the jitter of its clock, which is
    /// many ticks of a slow one: whatever the range can spare is a clock that was set back.
    pub(crate) const fn after_others(self) -> Terms {
        Terms { horizon: self.jitter() - (self.mask + 1).div_ceil(64), ..self }
    }

    /// From this many ticks on, a difference to the stamp is jitter.
    pub(crate) const fn jitter(&self) -> u64 {
        let range = self.mask + 1;
        range - at_least_2(self.ticks.ticks_in(JITTER_NANOS), range.div_ceil(4096))
    }

    /// How long, in ticks, a bucket stays after it is full.
    pub(crate) const fn margin(&self) -> u64 {
        self.ticks.ticks_in(MARGIN_NANOS) + 1
    }

    /// The lowest level that a debt may leave.
    pub(crate) const fn lowest(&self) -> u64 {
        let burst = self.capacity - self.floor;
        if self.layout.fixed_debt || burst > self.floor { 0 } else { self.floor - burst }
    }

    /// The tick at a clock reading, modulo 2^64.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        self.base.wrapping_add(self.ticks.tick(nanos))
    }

    pub(crate) const fn frame(&self) -> Frame {
        Frame { layout: self.layout, debt: self.floor >> self.layout.fraction }
    }

    /// The units of `n` tokens. More than any bucket holds cost more than any bucket holds.
    #[inline]
    pub(crate) const fn units(&self, n: u64) -> u64 {
        // At most (2^41 - 1) * 2^16.
        let n = if n > MAX_UNITS { MAX_UNITS } else { n };
        n << self.layout.fraction
    }

    /// Whole tokens in `units`.
    #[inline]
    pub(crate) const fn tokens(&self, units: u64) -> u64 {
        units >> self.layout.fraction
    }

    /// Whole tokens that a plain take finds at a level.
    #[inline]
    pub(crate) const fn available(&self, level: u64) -> u64 {
        self.tokens(level.saturating_sub(self.floor))
    }
}

/// More tokens than any burst, fewer than would overflow.
const MAX_UNITS: u64 = 2 * MAX_BURST - 1;

/// At most `most`, but rounded to nothing a window would vanish for slow quotas.
const fn at_least_2(ticks: u64, most: u64) -> u64 {
    let ticks = if ticks > most { most } else { ticks };
    if ticks < 2 { 2 } else { ticks }
}

/// How a bucket earns: as its [`Terms`] say, or as a plan on top of them.
pub(crate) trait Pace: Copy {
    fn terms(&self) -> &Terms;
    /// The level of a full bucket.
    fn capacity(&self) -> u64;
    /// The lowest level that a debt may leave.
    fn lowest(&self) -> u64;
    /// The units that came in the `passed` ticks until the tick `now`.
    fn earned(&self, now: u64, passed: u64) -> u64;
    /// The least number of ticks, from the tick `now` on, that earn `units`.
    fn ticks_for(&self, now: u64, units: u64) -> u64;
    /// What a bucket will have earned when it is empty of debt: a number that only takes and refunds move.
    fn mark(&self, stamp: u64, level: u64) -> u64;
}

impl Pace for Terms {
    #[inline]
    fn terms(&self) -> &Terms {
        self
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn lowest(&self) -> u64 {
        Terms::lowest(self)
    }

    #[inline]
    fn earned(&self, _: u64, passed: u64) -> u64 {
        // No overflow: `stamp + scale <= 62`.
        passed << self.layout.scale
    }

    #[inline]
    fn ticks_for(&self, _: u64, units: u64) -> u64 {
        // Units are below 2^58 (the stamp has 6 bits or more): the sum does not wrap.
        (units + (1 << self.layout.scale) - 1) >> self.layout.scale
    }

    fn mark(&self, stamp: u64, level: u64) -> u64 {
        // Stamps are known modulo the range, so marks are as well.
        (stamp << self.layout.scale).wrapping_sub(level) & (((self.mask + 1) << self.layout.scale) - 1)
    }
}

/// A clock reading, and how buckets earn at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<P = Terms> {
    pub(crate) pace: P,
    pub(crate) nanos: u64,
}

impl<P: Pace> Reading<P> {
    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        self.pace.terms().tick(self.nanos)
    }
}
