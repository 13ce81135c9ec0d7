//! The counts of a limiter.

use std::time::Duration;

use super::counters::{Counters, LATENCIES};
use super::sourced::Source;

/// The counts of a limiter, from [`stats`](crate::DistributedLimiter::stats).
///
/// All of them only grow, but for `keys` and `breaker_open`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DistributedStats {
    /// Keys that this process has a lease or a level of.
    pub keys: usize,
    /// Decisions by the local limit in front, all of them refusals.
    pub by_local: u64,
    /// Requests of keys that found no room among [`max_keys`](crate::DistributedBuilder::max_keys).
    pub without_room: u64,
    /// Grants from tokens at hand, and refusals as these mature later.
    pub by_lease: u64,
    /// Refusals by the level that the store told last.
    pub by_shadow: u64,
    /// Decisions by an answer of the store that the request waited for.
    pub by_store: u64,
    /// Decisions by this process's share, while the store did not answer.
    pub by_fallback: u64,
    /// Decisions by the policy, while the store did not answer.
    pub by_policy: u64,
    /// Refusals, by any source.
    pub denied: u64,
    /// Calls that the store answered in time.
    pub calls_answered: u64,
    /// Calls that it answered after the deadline. Their tokens were kept.
    pub calls_late: u64,
    /// Calls that did not take effect.
    pub calls_refused: u64,
    /// Calls that may have taken effect.
    pub calls_unknown: u64,
    /// Calls that will not take effect until an operator acts.
    pub calls_permanent: u64,
    /// Keys in all calls.
    pub ops: u64,
    /// Calls by their latency: up to 128 us, 256 us and so on to 8 s, and longer.
    pub latencies: [u64; LATENCIES],
    /// Tokens that the store granted to leases.
    pub tokens_granted: u64,
    /// Those that requests used.
    pub tokens_used: u64,
    /// Those that were given back.
    pub tokens_returned: u64,
    /// Tokens of calls without an answer: the store may have granted them.
    pub tokens_lost: u64,
    /// Whether calls are held back as the store does not answer.
    pub breaker_open: bool,
    /// How often that began.
    pub breaker_opened: u64,
}

impl DistributedStats {
    pub(crate) fn of(counters: &Counters) -> DistributedStats {
        use std::sync::atomic::Ordering::Relaxed;
        let by = |source: Source| counters.decisions[source as usize].load(Relaxed);
        let calls = counters.calls.each_ref().map(|count| count.load(Relaxed));
        let [tokens_granted, tokens_used, tokens_returned] =
            counters.gone.each_ref().map(|count| count.load(Relaxed));
        DistributedStats {
            by_local: by(Source::Local),
            by_lease: by(Source::Lease),
            by_shadow: by(Source::Shadow),
            by_store: by(Source::Store),
            by_fallback: by(Source::Fallback),
            by_policy: by(Source::FailOpen),
            denied: counters.denied.load(Relaxed),
            calls_answered: calls[0],
            calls_late: calls[1],
            calls_refused: calls[2],
            calls_unknown: calls[3],
            calls_permanent: calls[4],
            ops: counters.ops.load(Relaxed),
            latencies: counters.latencies.each_ref().map(|count| count.load(Relaxed)),
            tokens_granted,
            tokens_used,
            tokens_returned,
            tokens_lost: counters.lost.load(Relaxed),
            ..DistributedStats::default()
        }
    }

    /// Returns the upper bound of a place of [`latencies`](DistributedStats::latencies); `None` for
    /// the last one.
    #[must_use]
    pub fn latency_bound(place: usize) -> Option<Duration> {
        (place + 1 < LATENCIES).then(|| Duration::from_micros(1 << (place + 7)))
    }
}
