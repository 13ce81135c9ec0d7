//! The refill of a bucket that has a plan or none.

use crate::word::plan::Planned;
use crate::word::state::Refill;
use crate::word::terms::Terms;
use crate::word::tick::TickScale;

/// The refill of a bucket: that of its own terms, or that of a plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::tests) enum Either {
    Own(Terms),
    Plan(Planned),
}

/// Evaluates an expression on the refill of either variant.
macro_rules! ask {
    ($either:expr, $pace:ident => $what:expr) => {
        match $either {
            Either::Own($pace) => $what,
            Either::Plan($pace) => $what,
        }
    };
}

impl Refill for Either {
    fn terms(&self) -> &Terms {
        ask!(self, refill => refill.terms())
    }

    fn capacity(&self) -> u64 {
        ask!(self, refill => refill.capacity())
    }

    fn earned(&self, now: u64, passed: u64) -> u64 {
        ask!(self, refill => refill.earned(now, passed))
    }

    fn wait(&self, now: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        ask!(self, refill => refill.wait(now, goal, level, lag))
    }
}

impl Either {
    /// Returns the ticks after `now` until a level whose stamp is `lag` ticks ahead is `goal`.
    pub(in crate::tests) fn ticks_until(&self, now: u64, goal: u64, level: u64, lag: u64) -> u64 {
        let (units, clock) = self.wait(now, goal, level, lag);
        units.div_ceil(1 << clock.scale())
    }
}
