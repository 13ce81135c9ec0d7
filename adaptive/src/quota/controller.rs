//! The default controller of a quota. Pure but for the count of answers that it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::controller::controllers::{Controller, EARLY_SAMPLES, Fraction, Next};
use crate::signals::samples::Samples;
use crate::time::nanos_of;
use tollgate::Quota;

/// The share of the answers that the target is for, in thousandths.
const PERMILLE: u16 = 900;
/// The samples that a decision needs.
const SAMPLES: u64 = 32;

/// The default controller of an [`Adaptive`](crate::Adaptive).
pub(super) struct QuotaController {
    pub(super) ceiling: Quota,
    /// Nanoseconds.
    pub(super) target: u64,
    pub(super) interval: u64,
    pub(super) answers: Arc<AtomicU64>,
    /// The answers before the window.
    pub(super) before: u64,
}

impl QuotaController {
    /// Returns the answers of a window as a share of the ceiling's rate, which may be more than all
    /// of it.
    fn answered(&self, samples: &Samples, answers: u64) -> u64 {
        let period = nanos_of(self.ceiling.period());
        // The time in which the ceiling grants as many: below 2^126.
        let worth = u128::from(answers) * u128::from(period) / u128::from(self.ceiling.tokens());
        u64::try_from((worth.min(1 << 94) << 32) / u128::from(samples.window.max(1))).unwrap_or(u64::MAX)
    }

    fn decide(&self, samples: &Samples, Fraction(now): Fraction, answers: u64) -> Next {
        let (count, slower) = (samples.count(), samples.slower_than(self.target));
        if count < SAMPLES && !(slower >= EARLY_SAMPLES && 2 * slower > count) {
            // No answer for four targets and an interval: the rate falls.
            let patience = self.target.saturating_mul(4).saturating_add(self.interval);
            let stalled = samples.refused && count == 0 && samples.window > patience;
            return if stalled { Next::Set(Fraction(now / 2)) } else { Next::Wait };
        }
        // The share is at most 2^32, so the products are below 2^36.
        if samples.nanos_at(PERMILLE) > Some(self.target) {
            Next::Set(Fraction(self.answered(samples, answers).clamp(now / 2, now) * 7 / 8))
        } else if samples.refused {
            Next::Set(Fraction((now + now / 16).min(Fraction::ALL.0)))
        } else {
            Next::Stay
        }
    }
}

impl Controller for QuotaController {
    fn next(&mut self, samples: &Samples, now: Fraction) -> Next {
        let answers = self.answers.load(Ordering::Relaxed);
        let verdict = self.decide(samples, now, answers.wrapping_sub(self.before));
        if verdict != Next::Wait {
            self.before = answers;
        }
        verdict
    }
}
