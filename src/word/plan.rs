//! Plans: quotas of some keys, counted in the ticks of the limiter's own quota.
//!
//! A tick of the limiter earns `k` units under a plan. A plan has earned `floor(tick * k)` units by
//! a tick, with the tick counted from the beginning. The units between two ticks are the difference
//! of these two numbers. Nothing is rounded twice, so the error stays under one unit. (The floor of
//! `elapsed * k`, added up, lost 5 % of a plan's rate in a test.)

use std::fmt;
use std::time::Duration;

use crate::fault::{Fault, injected};
use crate::rule::gate::Gate;
use crate::rule::layout::{QuotaError, RawQuota};
use crate::rule::rate::Quota;
use crate::word::refilled::Refilled;
use crate::word::state::{Reading, Refill};
use crate::word::terms::Terms;
use crate::word::tick::TickScale;

/// A rule compiled for some keys of one limiter: the numbers of a [`Plan`](crate::Plan).
///
/// Of a window it is another limit, on a count that does not depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanTerms {
    /// The number of the limiter that the plan was made for.
    pub(crate) limiter: u64,
    quota: Quota,
    /// Whether the plan is a rate.
    gate: Gate,
    /// The limiter's own quota when the plan was made.
    own: RawQuota,
    /// Units that a tick earns, times `2^shift`, rounded up to 64 significant bits.
    factor: u64,
    shift: u32,
    /// Units in a full bucket under the plan.
    pub(crate) capacity: u64,
    /// Start from which the plan earns; `None` if the limiter had no other quota before.
    since: Option<PlanStart>,
    /// The set of overflow buckets of its keys, as the limiter numbers them.
    pub(crate) overflow_set: u8,
}

/// The start of the quota beside which a plan was made: a clock reading in nanoseconds, and its
/// tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanStart {
    pub(crate) nanos: u64,
    pub(crate) tick: u64,
}

impl PlanTerms {
    /// The overflow set of a plan that shares the buckets of the limiter's own quota.
    pub(crate) const OWN_SET: u8 = u8::MAX - 1;

    /// Returns a cap: another limit of a limiter of windows, whose counts do not depend on it.
    ///
    /// `numbers` are those of the limiter's own limit.
    pub(crate) fn cap(limiter: u64, limit: u64, numbers: RawQuota) -> PlanTerms {
        let quota = Quota::of_numbers(RawQuota { burst: limit, ..numbers });
        let (capacity, overflow_set) = (limit, PlanTerms::OWN_SET);
        // A limit of 0 is a count like any other.
        let gate = Gate::Counted;
        PlanTerms {
            limiter,
            quota,
            gate,
            own: numbers,
            factor: 0,
            shift: 0,
            capacity,
            since: None,
            overflow_set,
        }
    }

    /// Compiles a plan. `own` is the quota that the limiter's ticks count, by `terms`.
    pub(crate) fn compile(
        limiter: u64,
        quota: Quota,
        own: Quota,
        terms: &Terms,
        since: Option<PlanStart>,
    ) -> Result<PlanTerms, QuotaError> {
        let plan = PlanTerms::however_coarse(limiter, quota, own, terms, since)?;
        let raw = counted_by(quota, own);
        // `factor * 128 > units << shift`, which might overflow.
        if (u128::from(plan.factor) * 128 - 1) >> plan.shift >= u128::from(raw.burst) << terms.widths.fraction
        {
            return Err(QuotaError::PlanTickTooCoarse(raw));
        }
        if plan.ticks_to_fill() > (terms.mask + 1) / 64 {
            return Err(QuotaError::PlanFillsTooSlowly(raw));
        }
        Ok(plan)
    }

    /// Compiles a plan without a bound on a tick's worth, for a tiny layout that a test enumerates.
    pub(crate) fn however_coarse(
        limiter: u64,
        quota: Quota,
        own: Quota,
        terms: &Terms,
        since: Option<PlanStart>,
    ) -> Result<PlanTerms, QuotaError> {
        let raw = counted_by(quota, own);
        let RawQuota { tokens, nanos, burst } = raw;
        let widths = terms.widths;
        let most = terms.layout().most_burst();
        if burst > most {
            return Err(QuotaError::BurstTooWide(burst, most));
        }
        let own = own.numbers();
        // Units per tick, below 2^126 over below 2^126, times 2^scale.
        let up = u128::from(tokens) * u128::from(own.nanos);
        let down = u128::from(own.tokens) * u128::from(nanos);
        let Some((factor, shift)) = ratio(up, down, widths.scale.into()) else {
            let coarse = up > down;
            return Err(if coarse {
                QuotaError::PlanTickTooCoarse(raw)
            } else {
                QuotaError::PlanFillsTooSlowly(raw)
            });
        };
        Ok(PlanTerms {
            limiter,
            quota,
            gate: quota.gate(),
            own,
            factor,
            shift,
            capacity: terms.empty_level + (burst << widths.fraction),
            since,
            overflow_set: u8::MAX,
        })
    }

    pub(crate) fn with_overflow_set(self, overflow_set: u8) -> PlanTerms {
        PlanTerms { overflow_set, ..self }
    }

    /// Returns the quota that the plan was made of.
    pub(crate) fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the quota of keys under the plan while the limiter's own is `own`.
    ///
    /// The quota that the plan was made of stands for one beyond the bounds of a quota.
    pub(crate) fn in_force(&self, own: Quota) -> Quota {
        if own.numbers() == self.own || self.quota.gate() != Gate::Counted {
            return self.quota;
        }
        let RawQuota { tokens, nanos, burst } = self.quota.numbers().in_proportion(own.numbers(), self.own);
        Quota::checked(tokens, Duration::from_nanos(nanos), burst).unwrap_or(self.quota)
    }

    /// Returns the ticks in which a bucket surely fills from its lowest level.
    pub(crate) fn ticks_to_fill(&self) -> u64 {
        self.ticks(0, self.capacity)
    }

    /// Returns the ticks in which the plan surely earns a unit.
    pub(crate) fn ticks_of_a_unit(&self) -> u64 {
        self.ticks(0, 1)
    }

    /// Returns the least number of ticks after `tick` that earn `units`; `LONG` if it does not fit.
    fn ticks(&self, tick: i64, units: u64) -> u64 {
        ticks_to_earn(self.factor, self.shift, tick, units)
    }

    /// Returns whether an attempt decides on keys of this limiter under the plan.
    #[inline(always)]
    pub(crate) fn decides_for(&self, limiter: u64) -> bool {
        self.limiter == limiter && self.gate == Gate::Counted
    }
}

/// Returns the least number of ticks after `tick` that earn `units`, at `factor / 2^shift` units a
/// tick; `LONG` if it does not fit.
fn ticks_to_earn(factor: u64, shift: u32, tick: i64, units: u64) -> u64 {
    let product = i128::from(tick) * i128::from(factor);
    let into = product.cast_unsigned() & ((1 << shift) - 1);
    let goal = u128::from(units).checked_mul(1 << shift);
    let ticks = goal.map(|goal| goal.saturating_sub(into).div_ceil(factor.into()));
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(LONG)
}

/// Returns the numbers by which buckets count under a plan: the limiter's own, if the plan is no
/// rate.
fn counted_by(quota: Quota, own: Quota) -> RawQuota {
    if quota.gate() == Gate::Counted { quota.numbers() } else { own.numbers() }
}

impl fmt::Debug for PlanTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanTerms({})", self.quota)
    }
}

/// Stands for any number of ticks that no plan needs.
const LONG: u64 = u64::MAX >> 2;

/// Returns `up / down * 2^scale` as `factor / 2^shift`, the factor rounded up to 64 bits.
///
/// The shift is below 128. Returns `None` if the ratio is too small for that, or is 2^64 or more.
/// `up` and `down` are from 1 to below 2^126.
fn ratio(up: u128, down: u128, scale: u32) -> Option<(u64, u32)> {
    let (mut quotient, mut rest) = (up / down, up % down);
    let mut shift = 0_u32;
    // Long division, one bit at a time, until there are 64.
    while quotient >> 63 == 0 {
        rest *= 2;
        quotient = quotient * 2 + u128::from(rest >= down);
        if rest >= down {
            rest -= down;
        }
        shift += 1;
    }
    let factor = quotient + u128::from(rest > 0);
    let (factor, shift) = match u64::try_from(factor) {
        Ok(factor) => (factor, shift),
        // Rounded up to 2^64, unless the quotient had 65 bits or more from the beginning.
        Err(_) => (1 << 63, shift.checked_sub(1)?),
    };
    Some((factor, shift.checked_sub(scale)?)).filter(|(_, shift)| *shift < 128)
}

/// Returns a tick since the beginning, with a sign. It is known modulo 2^63, as the base of a
/// change is.
///
/// After a change to a faster quota a reading behind the change may be before the beginning. (Ticks
/// wrap where a nanosecond has more than one.)
fn signed(tick: u64) -> i64 {
    (tick << 1).cast_signed() >> 1
}

/// The refill of buckets under a plan, at a reading.
///
/// The ticks are the limiter's. The rate and the burst are the plan's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    terms: Terms,
    /// The numbers of the plan, and no more: an attempt keeps them in registers.
    factor: u64,
    shift: u32,
    capacity: u64,
    /// The tick of the reading.
    tick: u64,
    /// The tick from which these ticks count: the beginning of the present turn of the stamp in an
    /// attempt, else 0.
    begun: u64,
    /// Ticks from the plan's start to the reading; negative for a reading that is behind the start.
    /// `i64::MAX` for a plan without a start, or if the ticks may have wrapped since.
    age: i64,
}

impl Reading {
    pub(crate) fn under(self, plan: PlanTerms) -> Reading<Planned> {
        let age = plan.since.map_or(i64::MAX, |since| self.age(since));
        // A limiter that is blocked is so under each plan.
        let gate = if self.refill.gate == Gate::Shut { Gate::Shut } else { plan.quota.gate() };
        let terms = Terms { gate, ..self.refill };
        let PlanTerms { factor, shift, capacity, .. } = plan;
        let refill = Planned { terms, factor, shift, capacity, tick: self.tick, begun: 0, age };
        Reading { refill, at: self.at, tick: self.tick }
    }

    /// Returns the same reading, of an attempt, under a plan that is a rate. Its ticks count from
    /// the tick `begun`.
    ///
    /// Returns `None` if the reading is behind the plan's start, or the ticks may have wrapped
    /// since: the loop decides then.
    #[inline(always)]
    pub(super) fn attempted_under(self, plan: &PlanTerms, begun: u64) -> Option<Reading<Planned>> {
        // Ticks that have not wrapped: the start is tested first, as few plans have one.
        let begun = if injected(Fault::TurnForgotten) { 0 } else { begun };
        let age = match plan.since {
            None => i64::MAX,
            Some(_) if injected(Fault::PlanStartUnseen) => i64::MAX,
            Some(since) => signed(self.tick.wrapping_add(begun).wrapping_sub(since.tick)),
        };
        let PlanTerms { factor, shift, capacity, .. } = *plan;
        let refill = Planned { terms: self.refill, factor, shift, capacity, tick: self.tick, begun, age };
        (age >= 0).then_some(Reading { refill, at: self.at, tick: self.tick })
    }

    /// Returns the ticks since a start; negative if the reading is behind it.
    fn age(&self, PlanStart { nanos, tick }: PlanStart) -> i64 {
        let ahead = signed(self.tick.wrapping_sub(tick));
        let wraps = self.refill.ticks.may_count(self.nanos().saturating_sub(nanos), 1 << 62);
        // Longer than any stamp's range.
        if ahead < 0 && wraps { i64::MAX } else { ahead }
    }
}

impl Planned {
    /// Returns the ticks from the plan's start to the tick `now`, which is the reading's or ahead
    /// of it.
    fn age(&self, now: u64) -> i64 {
        // A lag is below 2^57 ticks.
        self.age.saturating_add_unsigned(now.wrapping_sub(self.tick))
    }

    /// Returns the least number of ticks, from the tick `now` on, that earn `units`.
    pub(crate) fn ticks_for(&self, now: u64, units: u64) -> u64 {
        // Before its start the plan earns nothing.
        let early = u64::try_from(self.age(now).saturating_neg()).unwrap_or(0);
        let from = signed(now.wrapping_add(self.begun).wrapping_add(early));
        ticks_to_earn(self.factor, self.shift, from, units).saturating_add(early).min(LONG)
    }
}

impl Planned {
    /// Returns the bucket where its debt, a lag or the plan's start delays its tokens.
    ///
    /// Passed by value: a reference would force the numbers into memory in each attempt.
    #[cold]
    fn refilled_late(self, at: u64, now: u64, level: u64, lag: u64) -> Refilled {
        let (terms, full) = (&self.terms, self.capacity);
        let (burst, left) = (terms.available(full), terms.available(level));
        let more = (terms.empty_level + terms.units(left + 1)).min(full);
        Refilled::Late {
            // A burst is at most 2^40.
            burst_high: (burst >> 32) as u16,
            burst_low: burst as u32,
            next: self.wait(now, more, level, lag).0,
            reset: self.wait(now, full, level, lag).0,
            from: at,
            clock: terms.ticks.by_ticks(),
        }
    }
}

/// Returns the ticks until a bucket under a plan has one token more than the whole ones that
/// remain, and until it is full.
///
/// The numbers are those of [`Refilled::Planned`]. Both are 0 for a full bucket, and at most
/// `LONG`.
pub(super) fn ticks_after(
    burst: u64,
    shift: u32,
    (tick, factor): (u64, u64),
    clock: TickScale,
    remaining: u64,
) -> (u64, u64) {
    let (full, level) = (burst << clock.fraction(), (remaining << clock.fraction()) + clock.part());
    let more = ((remaining + 1) << clock.fraction()).min(full);
    let ticks = |goal: u64| match goal.saturating_sub(level) {
        0 => 0,
        units => ticks_to_earn(factor, shift, signed(tick), units).min(LONG),
    };
    (ticks(more), ticks(full))
}

impl Refill for Planned {
    const PLANNED: bool = true;

    #[inline(always)]
    fn terms(&self) -> &Terms {
        &self.terms
    }

    #[inline(always)]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn earned(&self, now: u64, passed: u64) -> u64 {
        // The ticks before the plan's start are of another quota and earn nothing.
        let passed = passed.min(u64::try_from(self.age(now)).unwrap_or(0));
        let now = signed(now.wrapping_add(self.begun));
        // No overflow: `passed` is below 2^62, as a stamp's range is.
        let from = now - passed.cast_signed();
        // Below 2^63 times below 2^64, rounded down, also below 0.
        let earned_until = |tick: i64| (i128::from(tick) * i128::from(self.factor)) >> self.shift;
        let earned = earned_until(now) - earned_until(from);
        // The bucket holds less; added to a level it stays below 2^63.
        u64::try_from(earned).unwrap_or(u64::MAX).min(1 << 62)
    }

    #[inline(always)]
    fn refilled(&self, at: u64, now: u64, level: u64, lag: u64) -> Refilled {
        let Planned { terms, factor, shift, capacity, begun, .. } = *self;
        match level.checked_sub(terms.empty_level) {
            Some(left) if lag == 0 && self.age(now) >= 0 => {
                // A burst is at most 2^40, a shift is below 2^7, and a part of a token below 2^16.
                let burst = terms.tokens(capacity - terms.empty_level);
                let part = left & (terms.units(1) - 1);
                Refilled::Planned {
                    burst_high: (burst >> 32) as u16 | (shift << Refilled::SHIFT) as u16,
                    burst_low: burst as u32,
                    tick: now.wrapping_add(begun),
                    factor,
                    from: at,
                    clock: terms.ticks.with_part(part),
                }
            }
            _ => self.refilled_late(at, now, level, lag),
        }
    }

    fn wait(&self, now: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        let ticks = if goal <= level { 0 } else { self.ticks_for(now.wrapping_add(lag), goal - level) + lag };
        (ticks, self.terms.ticks.by_ticks())
    }
}
