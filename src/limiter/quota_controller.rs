//! The default controller of a quota. Pure but for the count of answers that it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::inflight::controller::{Controller, EARLY_SAMPLES, Share, Verdict};
use crate::inflight::seen::Seen;
use crate::rule::rate::Quota;

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
    fn answered(&self, seen: &Seen, answers: u64) -> u64 {
        let period = self.ceiling.numbers().nanos;
        // The time in which the ceiling grants as many: below 2^126.
        let worth = u128::from(answers) * u128::from(period) / u128::from(self.ceiling.tokens());
        u64::try_from((worth.min(1 << 94) << 32) / u128::from(seen.window.max(1))).unwrap_or(u64::MAX)
    }

    fn decide(&self, seen: &Seen, Share(now): Share, answers: u64) -> Verdict {
        let (samples, slower) = (seen.samples(), seen.slower_than(self.target));
        if samples < SAMPLES && !(slower >= EARLY_SAMPLES && 2 * slower > samples) {
            // No answer for four targets and an interval: the rate falls.
            let patience = self.target.saturating_mul(4).saturating_add(self.interval);
            let stalled = seen.refused && samples == 0 && seen.window > patience;
            return if stalled { Verdict::Set(Share(now / 2)) } else { Verdict::Wait };
        }
        // The share is at most 2^32, so the products are below 2^36.
        if seen.nanos_at(PERMILLE) > Some(self.target) {
            Verdict::Set(Share(self.answered(seen, answers).clamp(now / 2, now) * 7 / 8))
        } else if seen.refused {
            Verdict::Set(Share((now + now / 16).min(Share::ALL.0)))
        } else {
            Verdict::Stay
        }
    }
}

impl Controller for QuotaController {
    fn next(&mut self, seen: &Seen, now: Share) -> Verdict {
        let answers = self.answers.load(Ordering::Relaxed);
        let verdict = self.decide(seen, now, answers.wrapping_sub(self.before));
        if verdict != Verdict::Wait {
            self.before = answers;
        }
        verdict
    }
}
