//! The counts of a limiter.

use std::time::Duration;

use super::counters::{Counters, LATENCIES};
use super::sourced::Source;

/// The counts of a limiter, from [`stats`](crate::DistributedLimiter::stats).
///
/// Counters, but for `keys` and `breaker_open`. A refund takes its tokens off `tokens_used`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DistributedStats {
    /// Keys that this process keeps.
    pub keys: usize,
    /// Refusals by the limit of this process in front.
    pub by_local: u64,
    /// Requests of keys that found no room among [`max_keys`](crate::DistributedBuilder::max_keys).
    pub without_room: u64,
    /// Grants from tokens at hand, refusals of tokens that mature later, and refusals of
    /// `try_acquire_local` without a lease.
    pub by_lease: u64,
    /// Refusals by the level that the store had at its last answer, and of more tokens than the
    /// burst.
    pub by_shadow: u64,
    /// Decisions by an answer of the store that the request waited for.
    pub by_store: u64,
    /// Decisions by this process's share, while the store did not answer.
    pub by_fallback: u64,
    /// Decisions by the policy, while the store did not answer.
    pub by_policy: u64,
    /// Decisions of the former two kinds though the store answers: each waited for a call of its
    /// key and then for its own, and an answer takes more than half of the deadline.
    pub overdue: u64,
    /// Refusals, by any source.
    pub denied: u64,
    /// Calls that the store answered in time.
    pub calls_answered: u64,
    /// Calls that it answered after the deadline. Their tokens were kept, or given back in the
    /// exact mode.
    pub calls_late: u64,
    /// Calls that had no effect.
    pub calls_refused: u64,
    /// Calls that may have taken effect.
    pub calls_unknown: u64,
    /// Calls that fail until an operator acts: a password, a permission, a missing table.
    pub calls_permanent: u64,
    /// Keys in all calls.
    pub ops: u64,
    /// Calls by their latency: below 128 us, 256 us and so on to 8.4 s, and longer. See
    /// [`latency_bound`](DistributedStats::latency_bound).
    pub latencies: [u64; LATENCIES],
    /// Tokens that the store granted to leases.
    pub tokens_granted: u64,
    /// Granted tokens that requests used.
    pub tokens_used: u64,
    /// Granted tokens that were given back to the store, or ended with their window.
    pub tokens_returned: u64,
    /// Tokens of calls without an answer: the store may have granted them.
    pub tokens_lost: u64,
    /// Whether no call is sent but probes, at least to one lane of the store: its breaker is open,
    /// or the limiter is closed or without its runtime.
    pub breaker_open: bool,
    /// Outages so far, of all lanes: the times that a breaker of the store's handle opened.
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
            overdue: counters.overdue.load(Relaxed),
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

    /// Returns the latency that the calls at an index of [`latencies`](DistributedStats::latencies)
    /// are below; `None` for the last index, and beyond it.
    #[must_use]
    pub fn latency_bound(place: usize) -> Option<Duration> {
        (place + 1 < LATENCIES).then(|| Duration::from_micros(1 << (place + 7)))
    }
}
