//! The waits of a bucket after a decision, computed when asked for.
//!
//! Each wait is the least time, as that of a refusal is: one nanosecond earlier the tokens are not
//! there. Under a plan this holds for the next token and for a full bucket. The tokens between have
//! a time that is up to two ticks too long, since a grant has no room for the plan's numbers.
//!
//! Checked by `tests::next_token`, and through headers by `tests/it/headers.rs`.

use super::Granted;
use crate::rule::counts::CountWidths;
use crate::word::plan::ticks_after;
use crate::word::refilled::Refilled;
use crate::word::state::Refill;
use crate::word::tick::TickScale;
use crate::word::wait::Wait;
use crate::word::window::{ANY, WindowTerms};

impl Granted {
    /// Returns the nanoseconds until the bucket is full.
    #[inline]
    pub(crate) fn reset_nanos(&self) -> u64 {
        match computed(self.refilled, self.remaining) {
            Refilled::Told { reset } => reset,
            Refilled::Never => 0,
            Refilled::Own { full, clock, .. } => {
                let most = full >> clock.fraction();
                self.nanos_to(most, most)
            }
            Refilled::Planned { .. } => 0,
            Refilled::Late { reset: units, from, clock, .. } => Wait { units, from, clock }.nanos(),
            Refilled::Window { counts, lag, level, limit_and_part, from, clock } => {
                let window = window(counts, limit_and_part, clock);
                let (units, clock) = window.reset(level, lag.into());
                Wait { units, from, clock }.nanos()
            }
        }
    }

    /// Returns the nanoseconds until `n` tokens are there; `None` if they never are.
    pub(super) fn nanos_until(&self, n: u64) -> Option<u64> {
        let most = match self.refilled {
            _ if n <= self.remaining => return Some(0),
            Refilled::Told { reset } => return Some(reset),
            Refilled::Never => return None,
            Refilled::Own { full, clock, .. } => full >> clock.fraction(),
            Refilled::Planned { burst_high, burst_low, .. }
            | Refilled::Late { burst_high, burst_low, .. } => {
                u64::from(burst_high & Refilled::BURST_HIGH) << 32 | u64::from(burst_low)
            }
            Refilled::Window { limit_and_part, .. } => limit_of(limit_and_part),
        };
        (n <= most).then(|| self.nanos_to(n, most))
    }

    /// Returns the nanoseconds until a bucket has `n` tokens, of the `most` that it ever holds.
    fn nanos_to(&self, n: u64, most: u64) -> u64 {
        let Some(more) = n.checked_sub(self.remaining).filter(|more| *more > 0) else { return 0 };
        let wait = match computed(self.refilled, self.remaining) {
            Refilled::Told { .. } | Refilled::Planned { .. } | Refilled::Never => return 0,
            Refilled::Own { level, from, clock, .. } => {
                // A burst and a debt are below 2^58 units.
                let missing = (n << clock.fraction()).cast_signed() - level;
                Wait { units: u64::try_from(missing).unwrap_or(0), from, clock }
            }
            Refilled::Late { next, reset, from, clock, .. } => {
                let units = match most - self.remaining {
                    _ if more == 1 => next,
                    all if more == all => reset,
                    // The tokens between come evenly, each within a tick.
                    all => {
                        let between = u128::from(reset.saturating_sub(next)) * u128::from(more - 1);
                        let between = between.div_ceil(u128::from(all - 1));
                        next.saturating_add(u64::try_from(between).unwrap_or(u64::MAX)).saturating_add(1)
                    }
                };
                Wait { units, from, clock }
            }
            Refilled::Window { counts, lag, level, limit_and_part, from, clock } => {
                let window = window(counts, limit_and_part, clock);
                let (units, clock) = window.wait(0, n, level, lag.into());
                Wait { units, from, clock }
            }
        };
        wait.nanos()
    }
}

/// Returns a bucket under a plan with its waits computed, from the whole tokens that remain, and
/// another bucket as it is.
fn computed(refilled: Refilled, remaining: u64) -> Refilled {
    let Refilled::Planned { burst_high, burst_low, tick, factor, from, clock } = refilled else {
        return refilled;
    };
    let (shift, burst_high) = (u32::from(burst_high >> Refilled::SHIFT), burst_high & Refilled::BURST_HIGH);
    let burst = u64::from(burst_high) << 32 | u64::from(burst_low);
    let (next, reset) = ticks_after(burst, shift, (tick, factor), clock, remaining);
    let clock = clock.without_part().by_ticks();
    Refilled::Late { burst_high, burst_low, next, reset, from, clock }
}

fn limit_of(limit_and_part: u64) -> u64 {
    limit_and_part & ((1 << Refilled::PART) - 1)
}

fn window(counts: CountWidths, limit_and_part: u64, clock: TickScale) -> WindowTerms<ANY> {
    WindowTerms::after(limit_of(limit_and_part), counts, limit_and_part >> Refilled::PART, clock)
}
