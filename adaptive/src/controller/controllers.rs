//! Controllers: the next limit from a window of requests. Pure, in integers.

use std::fmt;

use crate::signals::samples::Samples;

/// A share of a ceiling, in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(pub(crate) u64);

impl Fraction {
    /// All of the ceiling.
    pub const ALL: Fraction = Fraction(1 << 32);
    /// Half of it.
    pub const HALF: Fraction = Fraction(1 << 31);
    /// A quarter of it.
    pub const QUARTER: Fraction = Fraction(1 << 30);

    /// Returns the share `of / all`, rounded down; all of the ceiling if `of` is larger.
    ///
    /// # Panics
    ///
    /// Panics if `all` is 0.
    #[must_use]
    #[track_caller]
    pub const fn new(of: u32, all: u32) -> Fraction {
        assert!(all > 0, "a share of 0 parts");
        if of >= all { Fraction::ALL } else { Fraction(((of as u64) << 32) / all as u64) }
    }

    /// Returns this share of a number, rounded down.
    #[must_use]
    pub const fn of(self, ceiling: u64) -> u64 {
        // The share is at most 2^32 / 2^32, so the result is at most the ceiling.
        ((ceiling as u128 * self.0 as u128) >> 32) as u64
    }
}

/// The decision of a [`Controller`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There are too few samples: the window goes on.
    Wait,
    /// The limit stays, and the next window begins.
    Stay,
    /// The limit changes.
    Set(Fraction),
    /// The limit returns to its value before the latest falls, as they did not help. Falls from
    /// before a limit that was set by hand do not count.
    Return,
}

/// A rule that decides on a limit once an interval.
///
/// After [`Next::Wait`] it is asked again in an eighth of the interval. Whatever it decides, the
/// limit stays within its floor and its ceiling. The limit is kept in sixteenths, and its whole
/// part is in force. In an interval it falls by half at most, and rises by an eighth and one at
/// most, but for [`Next::Return`]. So a limit of 3 may fall to 1, and one of 1 may rise to 3.
///
/// A controller runs in a call that takes or leaves a place. A panic of it goes on in that call,
/// and no place is lost by it. The limit stays, and the controller runs again an interval later.
/// No controller runs in a thread that panics already. A controller must not set the limit that it
/// decides on: that call would wait for the controller to end.
///
/// # Examples
///
/// A quarter of the ceiling while more than 5 in 100 requests fail, or one in 100 takes longer than
/// two seconds:
///
/// ```
/// use std::time::Duration;
/// use tollgate_adaptive::{Controller, Samples, Fraction, Next};
///
/// struct Steps;
///
/// impl Controller for Steps {
///     fn next(&mut self, samples: &Samples, _: Fraction) -> Next {
///         let Some(slow) = samples.quantile(990) else { return Next::Wait };
///         let many = |thousandths| samples.failed() * 1_000 > (samples.count() + samples.failed()) * thousandths;
///         Next::Set(if many(50) || slow > Duration::from_secs(2) {
///             Fraction::QUARTER
///         } else if many(10) || slow > Duration::from_millis(500) {
///             Fraction::HALF
///         } else {
///             Fraction::ALL
///         })
///     }
/// }
///
/// assert_eq!(Steps.next(&Samples::nothing(), Fraction::ALL), Next::Wait);
/// ```
pub trait Controller: Send {
    /// Returns the decision after a window. `now` is the limit in force.
    fn next(&mut self, samples: &Samples, now: Fraction) -> Next;
}

/// The decision of any controller, with limits in sixteenths of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Wait,
    Stay,
    To(u64),
    /// Back to the limit before falls that did not help.
    Back(u64),
}

/// Sixteenths of a place: a small limit moves by less than one.
pub(crate) const PLACE: u64 = 16;

/// Floor and ceiling of a limit, in sixteenths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) floor: u64,
    pub(crate) ceiling: u64,
}

impl Bounds {
    fn clamp(self, limit: u64) -> u64 {
        limit.clamp(self.floor, self.ceiling)
    }

    /// Returns the limit after `now`, within the bounds and the steps that no controller can
    /// exceed.
    pub(crate) fn next(self, now: u64, wanted: u64) -> u64 {
        let (least, most) = (now.div_ceil(2), now + now / 8 + PLACE);
        self.clamp(wanted.clamp(least, most))
    }
}

/// The default controller of an [`Inflight`](crate::Inflight): it keeps the p90 of the
/// samples within the target.
#[derive(Clone, Debug)]
pub(crate) struct TargetController {
    pub(crate) rule: TargetRule,
    /// The target in force, in nanoseconds: the given one, or a longer one for a while.
    pub(crate) target: u64,
    /// The nanoseconds for which the next longer target holds, and the reading at which the present
    /// one ends.
    hold: u64,
    pub(crate) until: u64,
    /// The limit and the p90 at the first of several falls in a row.
    fall: Option<(u64, u64)>,
}

/// The numbers of a [`TargetController`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetRule {
    /// Nanoseconds.
    pub(crate) target: u64,
    pub(crate) interval: u64,
    /// The share of the samples that the target is for, in thousandths.
    pub(crate) quantile: u16,
    /// The longest target that may be in force, in multiples of the given one.
    pub(crate) slack: u64,
    /// The samples that a decision needs.
    pub(crate) samples: u64,
}

/// The number of slow samples that suffices for a decision, if they are more than half.
pub(crate) const EARLY_SAMPLES: u64 = 4;
const SECOND: u64 = 1_000_000_000;
const MIN_HOLD: u64 = 15 * SECOND;
const MAX_HOLD: u64 = 240 * SECOND;

impl TargetController {
    pub(crate) fn new(rule: TargetRule) -> TargetController {
        TargetController { rule, target: rule.target, hold: MIN_HOLD, until: u64::MAX, fall: None }
    }

    /// Forgets the falls so far: the limit was set by hand. A longer target stays, as it tells the
    /// latency of the server.
    fn forget(&mut self) {
        self.fall = None;
    }

    /// Returns the decision on a limit in sixteenths.
    pub(crate) fn next(&mut self, samples: &Samples, limit: u64, bounds: Bounds) -> Move {
        let TargetRule { target: asked, interval, quantile, slack, .. } = self.rule;
        if samples.now >= self.until {
            // The longer target has ended: the given one is tried again.
            (self.target, self.until) = (asked, u64::MAX);
        }
        let (count, slower) = (samples.count(), samples.slower_than(self.target));
        if count < self.rule.samples && !(slower >= EARLY_SAMPLES && 2 * slower > count) {
            // Full, and no answer for four targets and an interval: the limit falls.
            let patience = self.target.saturating_mul(4).saturating_add(interval);
            let stalled = samples.refused && count == 0 && samples.window > patience;
            return if stalled { Move::To(limit / 2) } else { Move::Wait };
        }
        let Some(slow) = samples.nanos_at(quantile) else { return Move::Wait };
        if slow <= self.target {
            self.rise(samples, limit, slow, asked)
        } else {
            self.lower(samples, limit, slow, asked, slack, bounds)
        }
    }

    fn rise(&mut self, samples: &Samples, limit: u64, slow: u64, asked: u64) -> Move {
        // In time, and faster by a quarter than at the start: the fall was not in vain.
        if self.fall.is_some_and(|(from, at)| limit >= from || !is_near(slow, at)) {
            self.fall = None;
        }
        if u128::from(slow) * 4 <= u128::from(asked) * 3 {
            (self.target, self.hold, self.until) = (asked, MIN_HOLD, u64::MAX);
        }
        // Four fifths of the limit.
        let is_near_limit = u64::from(samples.peak) * PLACE * 5 >= limit * 4;
        if !samples.refused && !is_near_limit {
            return Move::Stay;
        }
        Move::To(scaled(limit, ratio(self.target - self.target / 4, slow).clamp(256, 256 * 9 / 8)) + PLACE)
    }

    fn lower(
        &mut self,
        samples: &Samples,
        limit: u64,
        slow: u64,
        asked: u64,
        slack: u64,
        bounds: Bounds,
    ) -> Move {
        let was = limit.min(u64::from(samples.peak.max(1)) * PLACE);
        // A fall was in vain before, and the longer target has ended: the given one is tried again,
        // by halves, and a half is enough.
        let again = self.hold > MIN_HOLD && self.until == u64::MAX;
        let (depth, most) = if again { (2, 128) } else { (4, 224) };
        match self.fall {
            None => self.fall = Some((was, slow)),
            Some((from, at)) if was * depth <= from || limit <= bounds.floor => {
                if slow < u64::MAX && is_near(slow, at) {
                    // A part of them in flight, and not faster: the fall was in vain.
                    let most = asked.saturating_mul(slack);
                    self.target = slow.saturating_add(slow / 4 * 3).min(most);
                    self.until = samples.now.saturating_add(self.hold);
                    self.hold = (self.hold * 2).min(MAX_HOLD);
                    self.fall = None;
                    return Move::Back(from);
                }
                self.fall = Some((was, slow));
            }
            Some(_) => {}
        }
        let slow = slow.max(expected(samples, self.target));
        Move::To(scaled(was, ratio(self.target, slow).clamp(128, most)))
    }
}

/// Returns whether a latency is at least 3/4 of another one.
fn is_near(slow: u64, at: u64) -> bool {
    u128::from(slow) * 4 >= u128::from(at) * 3
}

/// Returns the latency that a request admitted at the peak will have: the requests in flight over
/// the answers a second (Little's law). While a queue grows, its late answers tell an earlier,
/// lower latency.
///
/// It is 0 until a window and a target after a change of the limit, as some answers are no samples
/// until then.
fn expected(samples: &Samples, target: u64) -> u64 {
    if samples.unchanged < samples.window.saturating_add(target) {
        return 0;
    }
    let nanos = u128::from(samples.peak) * u128::from(samples.window) / u128::from(samples.count().max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Returns `target / slow` in 256ths.
fn ratio(target: u64, slow: u64) -> u64 {
    // At most 2^64 / 1 * 2^8.
    u64::try_from(u128::from(target) * 256 / u128::from(slow.max(1))).unwrap_or(u64::MAX)
}

/// Returns a limit times a ratio in 256ths, at most 288. A limit is below 2^36.
fn scaled(limit: u64, ratio: u64) -> u64 {
    limit * ratio / 256
}

/// The controller of a limit.
pub(crate) enum AnyController {
    Target(TargetController),
    Custom {
        controller: Box<dyn Controller>,
        /// The limit before the latest falls.
        before: u64,
    },
}

impl AnyController {
    /// Forgets the limits before one that was set by hand.
    pub(crate) fn forget(&mut self) {
        match self {
            AnyController::Target(target) => target.forget(),
            AnyController::Custom { before, .. } => *before = 0,
        }
    }

    pub(crate) fn next(&mut self, samples: &Samples, limit: u64, bounds: Bounds) -> Move {
        match self {
            AnyController::Target(target) => target.next(samples, limit, bounds),
            AnyController::Custom { controller, before } => {
                // At most 2^32, as a limit is at most the ceiling.
                let share = (u128::from(limit) << 32).div_ceil(u128::from(bounds.ceiling)) as u64;
                *before = limit.max(*before);
                match controller.next(samples, Fraction(share)) {
                    Next::Wait => Move::Wait,
                    Next::Stay => Move::Stay,
                    Next::Return => Move::Back(*before),
                    Next::Set(share) => {
                        let wanted = share.of(bounds.ceiling);
                        if wanted > limit {
                            *before = 0;
                        }
                        Move::To(wanted)
                    }
                }
            }
        }
    }
}

impl fmt::Debug for AnyController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyController::Target(target) => target.fmt(f),
            AnyController::Custom { .. } => f.write_str("a controller"),
        }
    }
}
