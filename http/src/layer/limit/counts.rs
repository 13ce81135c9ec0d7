//! Counts of one limit.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// Counts of one limit, each on its own cache line, as different requests write different counts.
#[derive(Debug, Default)]
pub(crate) struct LimitCounters {
    pub(crate) granted: CachePadded<AtomicU64>,
    pub(crate) refused: CachePadded<AtomicU64>,
    pub(crate) shadow_refused: CachePadded<AtomicU64>,
    pub(crate) rejected: CachePadded<AtomicU64>,
    pub(crate) keyless: CachePadded<AtomicU64>,
    pub(crate) refunded: CachePadded<AtomicU64>,
    pub(crate) estimated: CachePadded<AtomicU64>,
    pub(crate) banned: CachePadded<AtomicU64>,
}

/// Adds one, and returns the new count.
///
/// Relaxed: counts are for people and dashboards, and no count implies another.
pub(crate) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

/// Counts of one limit of a layer, from [`LayerStats::limits`](crate::LayerStats::limits).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStats {
    /// Name of the limit.
    pub policy: String,
    /// Requests that were granted, with fewer tokens left at this limit than at the others.
    pub granted: u64,
    /// Requests that this limit refused, those by a ban aside.
    pub refused: u64,
    /// Requests that were refused since their key is banned.
    pub banned: u64,
    /// Bans that were begun.
    pub bans: u64,
    /// Keys whose refusals are counted, keys that are banned, and keys without room whose requests
    /// are.
    pub ban_keys: usize,
    /// Refusals that were not counted for a ban, or began none, for want of room.
    pub unbanned_full: u64,
    /// Requests over this limit that were passed on, by shadow mode or for an unenforced key.
    pub shadow_refused: u64,
    /// Requests that were rejected for want of a key for this limit.
    pub rejected: u64,
    /// Requests without a key for this limit, with any outcome.
    pub keyless: u64,
    /// Requests granted here whose tokens were given back on their response.
    pub refunded: u64,
    /// Requests granted here that cost their estimate, since the body or the trailer that tells the
    /// [cost](crate::Cost) had none.
    pub estimated: u64,
    /// Keys that the limiter holds.
    pub keys: usize,
    /// Keys that the limiter has forgotten.
    pub evicted: u64,
    /// Decisions of the limiter on keys without room.
    pub without_room: u64,
}

impl LimitStats {
    /// Returns the counts of a limit, without those of its limiter.
    pub(crate) fn of(counters: &LimitCounters) -> LimitStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LimitStats {
            granted: of(&counters.granted),
            refused: of(&counters.refused),
            shadow_refused: of(&counters.shadow_refused),
            rejected: of(&counters.rejected),
            keyless: of(&counters.keyless),
            refunded: of(&counters.refunded),
            estimated: of(&counters.estimated),
            banned: of(&counters.banned),
            ..LimitStats::default()
        }
    }
}
