//! All keys of a limiter: their store, the engine, and the parts that are made when they are
//! needed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bucket::engine::Engine;
use crate::fault::{Fault, injected};
use crate::keyed::key::KeyQuery;
use crate::keyed::lines::Lines;
use crate::keyed::overflow::{OverflowBuckets, WhenFull};
use crate::keyed::removals::{Removals, Shard};
use crate::keyed::ring::ClockRing;
use crate::keyed::store::{MapStore, Store};
use crate::keyed::table::{Table, hash_of};
use crate::rule::error::InvalidRule;
use crate::rule::rate::Quota;
use crate::sync::OnceLock;
use crate::word::plan::PlanTerms;
use crate::word::terms::EVICTION_GRACE;

pub(crate) struct Keyspace<K> {
    pub(crate) store: Store<K>,
    pub(crate) engine: Engine,
    pub(crate) when_full: WhenFull,
    pub(crate) id: u64,
    parts: OnceLock<Box<Parts>>,
}

/// The parts of a limiter that a decision on a known key does not need. They are made when the
/// first of them is needed, apart from the cache lines that each decision reads.
pub(crate) struct Parts {
    /// The tickets of a map.
    pub(crate) ring: ClockRing,
    pub(crate) overflow: OverflowBuckets,
    pub(crate) removals: Removals,
    /// Callers that wait for tokens.
    pub(crate) lines: Lines,
    pub(crate) counters: KeyspaceCounters,
}

#[derive(Default)]
pub(crate) struct KeyspaceCounters {
    pub(crate) evicted: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) refused_full: AtomicU64,
    pub(crate) allowed_full: AtomicU64,
}

/// Counts of a limiter, from [`RateLimiter::stats`](crate::RateLimiter::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are held now.
    pub keys: usize,
    /// Full buckets evicted, to make room or by [`evict_idle`](crate::RateLimiter::evict_idle).
    pub evicted: u64,
    /// Decisions on shared buckets, by [`WhenFull::Share`].
    pub shared: u64,
    /// Decisions denied for want of room, by [`WhenFull::Deny`].
    pub refused_full: u64,
    /// Decisions granted for want of room, by [`WhenFull::Allow`].
    pub allowed_full: u64,
    /// Decisions granted by [shadow mode](crate::Builder::shadow) that would have been denied.
    pub overruled: u64,
}

/// The options of a [`Keyspace`].
pub(crate) struct KeyspaceOptions {
    pub(crate) engine: Engine,
    /// Whether a table is made, and not a map.
    pub(crate) inline: bool,
    pub(crate) presize: usize,
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
}

impl<K> Keyspace<K> {
    pub(crate) fn new(options: KeyspaceOptions) -> Keyspace<K> {
        // Tells limiters apart.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let KeyspaceOptions { engine, inline, presize, max_keys, when_full } = options;
        let table = (inline && max_keys > 0).then(|| Table::new(max_keys)).flatten();
        let store = table.map_or_else(|| Store::Map(MapStore::new(presize, max_keys)), Store::Table);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Keyspace { store, engine, when_full, id, parts: OnceLock::new() }
    }

    /// Returns the parts, if a call has needed them.
    pub(crate) fn parts_if_made(&self) -> Option<&Parts> {
        self.parts.get().map(|parts| &**parts)
    }

    pub(crate) fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| {
            Box::new(Parts {
                ring: ClockRing::new(self.store.max_keys()),
                overflow: OverflowBuckets::new(),
                removals: Removals::new(),
                lines: Lines::new(),
                counters: KeyspaceCounters::default(),
            })
        })
    }

    pub(crate) fn plan(&self, quota: Quota) -> Result<PlanTerms, InvalidRule> {
        let plan = self.engine.source.plan(self.id, quota, &self.engine.clock)?;
        if !injected(Fault::PlanAdmittedLate) {
            self.engine.admit_plan(plan.ticks_to_fill());
        }
        Ok(self.parts().overflow.admit(plan))
    }

    pub(crate) fn cap(&self, limit: u64) -> Result<PlanTerms, InvalidRule> {
        Ok(self.engine.source.cap(self.id, limit)?)
    }
}

impl<K: Eq> Keyspace<K> {
    /// Lets the next new key look for room at once, even if the hand has found none.
    pub(crate) fn made_room(&self) {
        if let Some(parts) = self.parts.get() {
            parts.ring.reset_rest(0);
        }
    }

    /// Lets new keys look for room after the eviction grace: a bucket was given tokens, and may be
    /// evicted then if it is full. A key without a place in use may be evicted at once.
    #[inline]
    pub(crate) fn was_given(&self) {
        if let Some(parts) = self.parts.get()
            && parts.ring.relies_on_looks()
        {
            self.reset_rest(&parts.ring);
        }
    }

    #[cold]
    fn reset_rest(&self, ring: &ClockRing) {
        ring.reset_rest(match self.engine.counts_places() {
            true => 0,
            false => self.engine.clock.nanos().saturating_add(EVICTION_GRACE),
        });
    }

    /// Returns the counts, except that of shadow mode.
    pub(crate) fn stats(&self) -> Stats {
        type Counter = fn(&KeyspaceCounters) -> &AtomicU64;
        let counters = self.parts.get().map(|parts| &parts.counters);
        let count =
            |counter: Counter| counters.map_or(0, |counters| counter(counters).load(Ordering::Relaxed));
        Stats {
            keys: self.store.len(),
            evicted: count(|counters| &counters.evicted) + self.store.evicted(),
            shared: count(|counters| &counters.shared),
            refused_full: count(|counters| &counters.refused_full),
            allowed_full: count(|counters| &counters.allowed_full),
            overruled: 0,
        }
    }

    /// Returns the shard that counts the removals of a key.
    pub(crate) fn shard<Q: ?Sized>(&self, key: KeyQuery<'_, Q>) -> Shard<'_> {
        self.parts().removals.of(self.removal_hash(key))
    }

    fn removal_hash<Q: ?Sized>(&self, key: KeyQuery<'_, Q>) -> u32 {
        match self.store {
            Store::Map(_) => key.hash(),
            Store::Table(_) => hash_of(key.full),
        }
    }

    /// Returns the count of removals of a key's shard, for a receipt.
    pub(crate) fn removals_of<Q: ?Sized>(&self, key: KeyQuery<'_, Q>) -> u64 {
        self.parts_if_made().map_or(0, |parts| parts.removals.of(self.removal_hash(key)).latest())
    }
}
