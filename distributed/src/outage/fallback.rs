//! The tokens of a key while the store does not answer.

use std::time::Duration;

use tollgate::{Denied, Granted, Quota, Reason};

/// The tokens of a key in this process while the store does not answer for it. A take names the
/// quota, so a change of it neither adds nor forgets a token.
pub(crate) struct Fallback {
    /// The tokens at `at`, negative in debt.
    tokens: f64,
    /// Nanoseconds since the origin.
    at: u64,
}

impl Fallback {
    pub(crate) fn new(tokens: f64, at: u64) -> Fallback {
        Fallback { tokens, at }
    }

    /// Takes `n` tokens, all or none, under a share of a quota: at least one token of burst.
    pub(crate) fn take(&mut self, n: u64, quota: Quota, share: f64, now: u64) -> Result<Granted, Denied> {
        let burst = (quota.capacity() as f64 * share).floor().max(1.0);
        let nanos = quota.period().as_nanos() as f64 / quota.tokens() as f64 / share;
        // A nanosecond more, against the rounding of a double.
        let earning = |tokens: f64| Duration::from_nanos((tokens * nanos) as u64 + 1);
        self.tokens = (self.tokens + now.saturating_sub(self.at) as f64 / nanos).min(burst);
        self.at = self.at.max(now);
        let rest = self.tokens - n as f64;
        if n as f64 > burst {
            return Err(Denied::from_parts(Reason::TooMany, n, self.tokens as u64, None));
        }
        if rest < 0.0 {
            return Err(Denied::from_parts(Reason::Empty, n, self.tokens as u64, Some(earning(-rest))));
        }
        self.tokens = rest;
        Ok(Granted::from_parts(n, rest as u64, earning(burst - rest)))
    }
}
