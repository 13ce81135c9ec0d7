//! The demand for a key, in this process.

use std::time::Duration;

/// A moving average of the tokens asked for, with a half-life of one horizon.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Tokens a nanosecond.
    rate: f64,
    asked: u64,
    at: u64,
}

impl Demand {
    pub(crate) fn new(now: u64) -> Demand {
        Demand { at: now, ..Demand::default() }
    }

    /// Notes the tokens asked for so far. Returns the rate in tokens a nanosecond.
    pub(crate) fn note(&mut self, asked: u64, now: u64, half_life: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.at) as f64;
        if elapsed > 0.0 {
            let fresh = asked.saturating_sub(self.asked) as f64 / elapsed;
            let weight = 1.0 - (-elapsed / (half_life.as_nanos() as f64).max(1.0)).exp2();
            self.rate += (fresh - self.rate) * weight;
            (self.asked, self.at) = (asked, now);
        }
        self.rate
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }
}
