//! The builder of a quota that follows the latency of the answers.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::adaptive::{AdaptedLimiter, Adaptive, PARTS, part};
use super::controller::QuotaController;
use crate::controller::control_loop::{ControlLoop, LoopOptions};
use crate::controller::controllers::{AnyController, Controller, Fraction};
use crate::count::atomic_word::AtomicFlightWord;
use crate::invalid_limit::InvalidLimit;
use crate::time::nanos_of;
use tollgate::Clock;
use tollgate::InvalidRule;
use tollgate::Quota;

/// A builder of an [`Adaptive`], from [`Adaptive::new`].
#[must_use = "a builder adapts nothing: `.build()` does"]
pub struct AdaptiveBuilder {
    limiter: AdaptedLimiter,
    ceiling: Quota,
    floor: Fraction,
    target: Duration,
    interval: Duration,
    clock: Clock,
    controller: Option<Box<dyn Controller>>,
}

impl Adaptive {
    /// Begins a quota that is a share of a ceiling, for a
    /// [`RateLimiter`](tollgate::RateLimiter) or a [`TokenBucket`](tollgate::TokenBucket) that was
    /// built with [`headroom`](tollgate::Builder::headroom) for the ceiling.
    ///
    /// A request for more tokens than the burst in force is never granted. So the burst of the
    /// floor should be at least the largest request.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if the ceiling, or a 32nd of it, does not fit into the words of the
    /// limiter.
    #[expect(clippy::new_ret_no_self, reason = "the quota is adapted once its options are set")]
    pub fn new(limiter: impl Into<AdaptedLimiter>, ceiling: Quota) -> Result<AdaptiveBuilder, InvalidRule> {
        let limiter = limiter.into();
        limiter.check_room(ceiling)?;
        let builder = AdaptiveBuilder {
            limiter,
            ceiling,
            floor: Fraction::ALL,
            target: Duration::from_secs(1),
            interval: Duration::from_millis(250),
            clock: Clock::default(),
            controller: None,
        };
        builder.floor(Fraction::new(1, 32))
    }
}

impl AdaptiveBuilder {
    /// Sets the least share of the ceiling: by default a 32nd. A share below 2^-24 counts as that.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if that share of the ceiling is no quota, or does not fit into the words of
    /// the limiter.
    pub fn floor(self, floor: Fraction) -> Result<Self, InvalidRule> {
        let floor = floor.max(Fraction::new(1, PARTS));
        self.limiter.check_room(part(self.ceiling, floor)?)?;
        Ok(AdaptiveBuilder { floor, ..self })
    }

    /// Sets the latency that nine tenths of the answers are not to exceed, from 1 us to a minute:
    /// by default a second.
    ///
    /// A good target is two to three times the p90 of a calm server.
    pub fn target(self, target: Duration) -> Self {
        AdaptiveBuilder { target, ..self }
    }

    /// Sets the time between two decisions of the controller, from 1 ms to a minute: 250 ms by
    /// default. [`build`](Self::build) refuses any other.
    pub fn interval(self, interval: Duration) -> Self {
        AdaptiveBuilder { interval, ..self }
    }

    /// Sets the clock; by default the [processor's counter](Clock::new).
    pub fn clock(self, clock: Clock) -> Self {
        AdaptiveBuilder { clock, ..self }
    }

    /// Sets the controller. The target then has no effect.
    pub fn by(self, controller: impl Controller + 'static) -> Self {
        AdaptiveBuilder { controller: Some(Box::new(controller)), ..self }
    }

    /// Puts the ceiling in force, and returns the quota that adapts.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] names the number that is out of its bounds.
    pub fn build(self) -> Result<Adaptive, InvalidLimit> {
        let AdaptiveBuilder { limiter, ceiling, floor, target, interval, clock, controller } = self;
        const MINUTE: u128 = 60_000_000_000;
        InvalidLimit::check("a target in ns", target.as_nanos(), (1_000, MINUTE))?;
        InvalidLimit::check("an interval in ns", interval.as_nanos(), (1_000_000, MINUTE))?;
        let (target, interval) = (nanos_of(target), nanos_of(interval));
        let answers = Arc::new(AtomicU64::new(0));
        let controller = controller.unwrap_or_else(|| {
            let answers = Arc::clone(&answers);
            Box::new(QuotaController { ceiling, target, interval, answers, before: 0 })
        });
        let control = ControlLoop::new(LoopOptions {
            clock,
            controller: AnyController::Custom { controller, before: 0 },
            // At most 2^24, and at least 1.
            floor: floor.of(PARTS.into()) as u32,
            ceiling: PARTS,
            start: PARTS,
            interval,
            target,
        });
        // It fits: `new` has checked it.
        let _ = limiter.set(ceiling);
        Ok(Adaptive {
            control,
            word: AtomicFlightWord::new(PARTS),
            setting: Mutex::new(limiter.quota()),
            limiter,
            ceiling,
            applied: AtomicU32::new(PARTS),
            answers,
        })
    }
}

impl fmt::Debug for AdaptiveBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveBuilder")
            .field("ceiling", &format_args!("{}", self.ceiling))
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
