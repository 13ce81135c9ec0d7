//! The tokens of a key while the store does not answer.

use std::time::Duration;

use tollgate::{Denied, Granted, Quota, Reason};

use crate::law::amount::{Amount, StoreAnswer};
use crate::law::count::Count;
use crate::law::count_spec::{CountSpec, Edges};

/// The tokens of a key in this process while the store does not answer for it.
pub(crate) enum Fallback {
    Bucket(FallbackBucket),
    Count(FallbackCount),
}

/// A count of this process, by the law of the store. It counts up to the share of the limit.
pub(crate) struct FallbackCount(Option<Count>);

impl FallbackCount {
    /// Returns the count of a window in which `left` tokens of the share are left; `edge_us` is the
    /// end of that window by the clock of the store. Without one nothing is used.
    pub(crate) fn new(spec: &CountSpec, left: f64, edge_us: Option<u64>) -> FallbackCount {
        let used = spec.limit().saturating_sub(left.max(0.0) as u64);
        let within = edge_us.map(|edge_us| match spec.edges() {
            Edges::FirstUse { period_us } => edge_us.saturating_sub(period_us),
            _ => edge_us.saturating_sub(1),
        });
        let amount = Amount { spent: used, ..Amount::default() };
        let step = |at| Count::step(None, spec, at, amount).ok();
        FallbackCount(within.and_then(step).and_then(|(count, _)| count))
    }

    /// Takes `n` tokens, all or none, at a time of the store.
    pub(crate) fn take(&mut self, n: u64, spec: &CountSpec, now_us: u64) -> Result<Granted, Denied> {
        let unavailable = || Denied::from_parts(Reason::Unavailable, n, 0, None);
        if n > spec.limit() {
            return Err(Denied::from_parts(Reason::TooMany, n, 0, None));
        }
        let amount = Amount { min: n as i64, max: n as i64, ..Amount::default() };
        let (count, answer) =
            Count::step(self.0.as_ref(), spec, now_us, amount).map_err(|_| unavailable())?;
        self.0 = count.or(self.0.take());
        let StoreAnswer { granted, credits, edge_us, .. } = answer;
        let left = u64::try_from(credits).unwrap_or(0);
        let wait = Duration::from_micros(edge_us.saturating_sub(now_us));
        if granted as u64 == n {
            return Ok(Granted::from_parts(n, left, wait));
        }
        Err(Denied::from_parts(Reason::Empty, n, left, Some(wait)))
    }
}

/// The tokens of a bucket. A take names the quota, so a change of it neither adds nor forgets a
/// token.
pub(crate) struct FallbackBucket {
    /// The tokens at `at`, negative in debt.
    tokens: f64,
    /// Nanoseconds since the origin.
    at: u64,
}

impl FallbackBucket {
    pub(crate) fn new(tokens: f64, at: u64) -> FallbackBucket {
        FallbackBucket { tokens, at }
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
