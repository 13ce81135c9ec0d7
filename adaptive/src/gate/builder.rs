//! The builder of a limit that adapts.

use std::fmt;
use std::time::Duration;

use crate::controller::control_loop::{ControlLoop, LoopOptions};
use crate::controller::controllers::{AnyController, Controller, TargetController, TargetRule};
use crate::count::atomic_word::AtomicFlightWord;
use crate::gate::inflight::Inflight;
use crate::invalid_limit::InvalidLimit;
use crate::time::nanos_of;
use tollgate::Clock;

/// A builder of an [`Inflight`] that adapts, from [`Inflight::adaptive`].
#[must_use = "a builder is no limit: `.build()` makes one"]
pub struct InflightBuilder {
    target: Duration,
    ceiling: u32,
    floor: u32,
    start: Option<u32>,
    interval: Duration,
    quantile: u16,
    slack: u64,
    samples: u64,
    clock: Clock,
    controller: Option<Box<dyn Controller>>,
}

impl Inflight {
    /// Begins a limit that follows the latency of the answers, so that nine tenths are answered
    /// within `target`.
    ///
    /// A good target is two to three times the p90 of a calm server: the latency that nine
    /// tenths of its answers do not exceed. The limit is never above `ceiling`. A thread that
    /// enters or leaves decides on it, four times a second.
    ///
    /// * Slower than the target: the limit becomes the most requests in flight times `target /
    ///   slow` (Little's law, J. D. C. Little, 1961, <https://doi.org/10.1287/opre.9.3.383>),
    ///   between a half and 7/8 of them.
    /// * In time, and a request was refused, or four fifths of the limit were used: the limit rises
    ///   by one and up to an eighth.
    /// * A quarter as many in flight, and not faster: the requests in flight are not the cause. The
    ///   limit goes back, and a target up to twice as long is in force for 15 s to 4 minutes. When
    ///   the given target is tried again, half as many are enough.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_adaptive::Inflight;
    ///
    /// let upstream = Inflight::adaptive(Duration::from_millis(300), 1_000).build()?;
    /// if let Ok(flight) = upstream.try_enter() {
    ///     // Send the request, and wait for its answer.
    ///     flight.answered();
    /// }
    /// # Ok::<(), tollgate_adaptive::InvalidLimit>(())
    /// ```
    pub fn adaptive(target: Duration, ceiling: u32) -> InflightBuilder {
        InflightBuilder {
            target,
            ceiling,
            floor: 1,
            start: None,
            interval: Duration::from_millis(250),
            quantile: 900,
            slack: 2,
            samples: 32,
            clock: Clock::default(),
            controller: None,
        }
    }

    /// Returns the target in force: the given one, or a longer one for a while. `None` if the limit
    /// is fixed.
    #[must_use]
    pub fn target(&self) -> Option<Duration> {
        self.control.as_ref().map(|control| control.target())
    }
}

impl InflightBuilder {
    /// Sets the least limit, from 1 to the ceiling: 1 by default.
    pub fn floor(self, floor: u32) -> Self {
        InflightBuilder { floor, ..self }
    }

    /// Sets the first limit, from the floor to the ceiling: by default 20, or the nearer of these
    /// bounds.
    pub fn start(self, start: u32) -> Self {
        InflightBuilder { start: Some(start), ..self }
    }

    /// Sets the time between two decisions, from 1 ms to a minute: 250 ms by default.
    pub fn interval(self, interval: Duration) -> Self {
        InflightBuilder { interval, ..self }
    }

    /// Sets the share of the answers that the target is for, in thousandths from 1 to 999: 900 by
    /// default.
    pub fn quantile(self, thousandths: u16) -> Self {
        InflightBuilder { quantile: thousandths, ..self }
    }

    /// Sets the longest target that may be in force, in multiples of the target from 1 to 1,000: 2
    /// by default. 1 never lengthens the target.
    pub fn slack(self, slack: u32) -> Self {
        InflightBuilder { slack: slack.into(), ..self }
    }

    /// Sets the samples that a decision needs, at least 1: 32 by default. Four slow ones are enough
    /// if they are more than half.
    pub fn samples(self, samples: u32) -> Self {
        InflightBuilder { samples: samples.into(), ..self }
    }

    /// Sets the clock; by default the [processor's counter](Clock::new).
    pub fn clock(self, clock: Clock) -> Self {
        InflightBuilder { clock, ..self }
    }

    /// Sets the controller. The target then has one use: a request that is given up after it counts
    /// as overloaded. [`quantile`](Self::quantile), [`slack`](Self::slack) and
    /// [`samples`](Self::samples) are of the usual controller, and have no effect.
    pub fn controller(self, controller: impl Controller + 'static) -> Self {
        InflightBuilder { controller: Some(Box::new(controller)), ..self }
    }

    /// Builds the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] names the number that is out of its bounds. The ceiling is at least 1, and
    /// the target is from 1 us to a minute.
    pub fn build(self) -> Result<Inflight, InvalidLimit> {
        let InflightBuilder { target, ceiling, floor, start, interval, quantile, slack, samples, .. } = self;
        let most = u128::from(u32::MAX);
        InvalidLimit::check("a ceiling", ceiling, (1, most))?;
        InvalidLimit::check("a floor", floor, (1, ceiling.into()))?;
        let start = start.unwrap_or(20.clamp(floor, ceiling));
        InvalidLimit::check("a first limit", start, (floor.into(), ceiling.into()))?;
        // A minute in nanoseconds: the histogram's last bucket ends above.
        const MINUTE: u128 = 60_000_000_000;
        InvalidLimit::check("a target in ns", target.as_nanos(), (1_000, MINUTE))?;
        InvalidLimit::check("an interval in ns", interval.as_nanos(), (1_000_000, MINUTE))?;
        InvalidLimit::check("a share in thousandths", quantile, (1, 999))?;
        InvalidLimit::check("a slack", slack, (1, 1_000))?;
        InvalidLimit::check("a number of samples", samples, (1, most))?;
        let (target, interval) = (nanos_of(target), nanos_of(interval));
        let rule = TargetRule { target, interval, quantile, slack, samples };
        let controller = match self.controller {
            Some(controller) => AnyController::Custom { controller, before: 0 },
            None => AnyController::Target(TargetController::new(rule)),
        };
        let control = ControlLoop::new(LoopOptions {
            clock: self.clock,
            controller,
            floor,
            ceiling,
            start,
            interval,
            target,
        });
        Ok(Inflight { word: AtomicFlightWord::new(start), control: Some(Box::new(control)) })
    }
}

impl fmt::Debug for InflightBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightBuilder")
            .field("target", &self.target)
            .field("ceiling", &self.ceiling)
            .finish_non_exhaustive()
    }
}
