//! What all handles to one limiter share: the map, its bound, and what is counted.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use papaya::LocalGuard;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{Place, Rules};
use crate::bucket::live_terms::Change;
use crate::keyed::entry::Found;
use crate::keyed::hot::Hot;
use crate::keyed::id::Id;
use crate::keyed::key::{Carried, Map, Stored, ToKey};
use crate::keyed::overflow::Shares;
use crate::keyed::removals::Removals;
use crate::keyed::ring::Ring;
use crate::keyed::table::{Held, Table};
use crate::limiter::builder::{Builder, WhenFull};
use crate::limiter::observer::Extras;
use crate::quota::rate::{InvalidQuota, Quota};
use crate::word::plan::Plan;
use crate::word::state::State;
use crate::word::terms::MARGIN_NANOS;

pub(crate) struct Shared<K, S> {
    pub(crate) store: Store<K>,
    pub(crate) hasher: S,
    pub(crate) rules: Rules,
    pub(crate) extras: Extras,
    pub(crate) when_full: WhenFull,
    /// Which of these plans a key is under.
    pub(crate) plans: Option<Box<Plans<K>>>,
    /// Keys that are spread over cores, if any may be.
    pub(crate) hot: Option<Box<Hot>>,
    /// No plans to choose from, nobody looks on, and no key is spread: one test in the hot path.
    pub(crate) plain: bool,
    pub(crate) id: u64,
    pub(crate) shares: Shares,
    pub(crate) removals: Removals,
    pub(crate) counters: CachePadded<Counters>,
}

/// Where the buckets are.
#[allow(
    clippy::large_enum_variant,
    reason = "one a limiter, which is on the heap; a box would be one more load in each decision"
)]
pub(crate) enum Store<K> {
    Map(Buckets<K>),
    Table(Table),
}

/// A map of them, and its bound.
pub(crate) struct Buckets<K> {
    pub(crate) map: Map<K>,
    pub(crate) ring: Ring,
}

/// A store, and what it takes to look into it.
pub(crate) enum Pin<'a, K> {
    Map(&'a Buckets<K>, LocalGuard<'a>),
    Table(&'a Table),
}

impl<K> Store<K> {
    #[inline(always)]
    pub(crate) fn pin(&self) -> Pin<'_, K> {
        match self {
            Store::Map(buckets) => Pin::Map(buckets, buckets.map.guard()),
            Store::Table(table) => Pin::Table(table),
        }
    }
}

impl<K: Eq> Store<K> {
    /// Keys that a table has evicted: it counts them by itself.
    fn evicted(&self) -> u64 {
        match self {
            Store::Map(_) => 0,
            Store::Table(table) => table.evicted(),
        }
    }

    /// Keys held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Store::Map(buckets) => buckets.map.len(),
            Store::Table(table) => table.len(),
        }
    }
}

pub(crate) struct Plans<K> {
    pub(crate) plans: Vec<Plan>,
    pub(crate) choose: Choose<K>,
}

/// Chooses a plan for a key, by its place in a list.
pub(crate) type Choose<K> = Box<dyn Fn(&K) -> Option<usize> + Send + Sync>;

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) evicted: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) refused_full: AtomicU64,
    pub(crate) allowed_full: AtomicU64,
}

/// What a limiter holds and did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys held now.
    pub keys: usize,
    /// Buckets evicted, full, to make room or by [`evict_idle`](crate::RateLimiter::evict_idle).
    pub evicted: u64,
    /// Decisions on shared buckets, by [`WhenFull::Share`].
    pub shared: u64,
    /// Decisions denied for want of room, by [`WhenFull::Deny`].
    pub refused_full: u64,
    /// Decisions granted for want of room, by [`WhenFull::Allow`].
    pub allowed_full: u64,
    /// Decisions granted by [shadow mode](Builder::shadow) that would have been denied.
    pub overruled: u64,
    /// Keys that are [spread over cores](Builder::spread_hot) now.
    pub spread: usize,
}

impl<K, S> Shared<K, S> {
    pub(crate) fn new(set: Builder<K, S>) -> Shared<K, S> {
        /// Tells limiters apart.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (rules, extras) = set.settings.finish();
        let store = match set.inline {
            Some(keys) => Store::Table(Table::new(keys)),
            None => Store::Map(Buckets {
                map: Map::with_capacity_and_hasher(set.presize.min(set.max_keys), Carried::default()),
                ring: Ring::new(set.max_keys),
            }),
        };
        let mut shared = Shared {
            store,
            hasher: set.hasher,
            rules,
            extras,
            when_full: set.when_full,
            plans: None,
            hot: None,
            plain: false,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            shares: Shares::new(),
            removals: Removals::new(),
            counters: CachePadded::default(),
        };
        shared.plans = set.choose.map(|choose| {
            let compile = |quota| shared.plan(quota).expect("the builder has tried it");
            Box::new(Plans { plans: set.plans.into_iter().map(compile).collect(), choose })
        });
        shared.plain = shared.plans.is_none() && shared.extras.observer.is_none();
        if set.spread_hot && shared.plain {
            shared.hot = Some(Box::new(Hot::new()));
            shared.plain = false;
        }
        shared
    }

    pub(crate) fn plan(&self, quota: Quota) -> Result<Plan, InvalidQuota> {
        let plan = self.rules.source.plan(self.id, quota, &self.rules.clock)?;
        self.rules.admit_plan(plan.ticks_to_fill());
        Ok(self.shares.admit(plan))
    }
}

impl<K: Eq, S> Shared<K, S> {
    pub(crate) fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        if self.rules.source.set(quota, &self.rules.clock)? == Change::LowerBurst {
            self.gather_after_a_lower_burst();
        }
        self.made_room();
        Ok(())
    }

    /// Lets the next newcomer look for room at once: there may be some where the hand found none.
    fn made_room(&self) {
        if let Store::Map(buckets) = &self.store {
            buckets.ring.wake(0);
        }
    }

    /// Lets newcomers look for room when the margin is over: a bucket was given tokens, and is due
    /// then if it is full.
    pub(crate) fn was_given(&self) {
        if let Store::Map(Buckets { ring, .. }) = &self.store
            && ring.relies_on_looks()
        {
            ring.wake(self.rules.clock.nanos().saturating_add(MARGIN_NANOS));
        }
    }

    /// Seals a bucket of a map that has been full for the margin, unless it is spread; else tells the clock reading at which it may be.
    pub(crate) fn seal_if_idle(&self, bucket: &Bucket, now: u64) -> Result<bool, u64> {
        let Some(hot) = &self.hot else { return self.rules.seal_if_idle(bucket) };
        let id = Id::of(bucket);
        let sealed = hot.seal_if_idle(bucket, id, &self.rules)?;
        if !sealed && bucket.state() != State::SEALED {
            self.fold_if_idle(hot, &self.store.pin(), hot.seat(id), self.rules.clock.nanos());
            return Err(now);
        }
        Ok(sealed)
    }

    pub(crate) fn stats(&self) -> Stats {
        let Counters { evicted, shared, refused_full, allowed_full } = &*self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys: self.store.len(),
            evicted: count(evicted) + self.store.evicted(),
            shared: count(shared),
            refused_full: count(refused_full),
            allowed_full: count(allowed_full),
            overruled: self.extras.overruled(),
            spread: self.hot.as_ref().map_or(0, |hot| hot.len()),
        }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &Pin<'_, K>, key: &Q) -> bool {
        let place = self.place(pin, key);
        let Some(found) = place.search() else { return false };
        let live = self.rules.seal(found, || self.shard(pin, place.key).raise());
        if live && let Some(hot) = &self.hot {
            hot.forget(found.id());
        }
        match (pin, found) {
            (Pin::Table(table), Found::Inline(held)) if live => table.vacate(held, &self.rules),
            _ => place.bury(),
        }
        self.made_room();
        live
    }

    /// Forgets every key.
    pub(crate) fn clear(&self) {
        match &self.store {
            Store::Map(Buckets { map, .. }) => {
                let stays = |stored: &Stored<K>, bucket: &Bucket| {
                    if self.rules.seal(bucket, || self.removals.of(stored.tag.hash).raise()) {
                        self.sealed(bucket);
                    }
                    false
                };
                map.retain(stays, &map.guard());
            }
            Store::Table(table) => {
                let seal = |held: Held<'_>| self.rules.seal(held, || self.removals.of(held.hash()).raise());
                table.clear(&self.rules, seal, |bucket| self.sealed(bucket));
            }
        }
        self.made_room();
    }

    pub(crate) fn evict_idle(&self) -> usize {
        if !self.rules.starts_full() {
            return 0;
        }
        self.fold_idle();
        let evicted = match &self.store {
            Store::Map(Buckets { map, .. }) => {
                let mut evicted = 0;
                let stays = |_: &Stored<K>, bucket: &Bucket| {
                    // Never charged: somebody's first use is under way.
                    if bucket.state() == State::FULL {
                        return true;
                    }
                    let sealed = self.seal_if_idle(bucket, 0);
                    evicted += usize::from(sealed == Ok(true));
                    sealed.is_err()
                };
                map.retain(stays, &map.guard());
                evicted
            }
            Store::Table(table) => table.evict_idle(|bucket| self.seal_if_idle(bucket, 0) == Ok(true)),
        };
        self.counters.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        if evicted > 0 {
            self.made_room();
        }
        evicted
    }
}
