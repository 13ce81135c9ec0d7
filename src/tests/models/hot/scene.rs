//! A key with a bucket in a store, which threads take from, spread and remove.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::run;
use super::super::world::{SECOND, fixed};
use crate::bucket::atomic::{Bucket, BucketRef, Miss, Order};
use crate::bucket::engine::{Engine, Now};
use crate::bucket::lease::Mode;
use crate::keyed::hot::HotKeys;
use crate::keyed::id::{BucketId, EntryId};
use crate::keyed::idle;
use crate::keyed::protocol;
use crate::keyed::table::{SlotRef, Table};
use crate::sync::{AtomicU64, Ordering, yield_now};
use crate::time::clock::{Clock, MockClock};
use crate::word::state::State;
use crate::word::verb::Take;

pub(super) const NO_TAG: EntryId = EntryId { hash: 0, ticket: 0 };

/// The time that earns one token, in nanoseconds.
pub(super) const SLOT: u64 = 10 * SECOND;
pub(super) const BURST: u64 = 4;
/// Longer than the time to fill any bucket plus the eviction grace.
pub(super) const LONG: Duration = Duration::from_secs(100);
pub(super) const LATER: u64 = 100 * SECOND;

/// A store that has the bucket of the key.
pub(super) trait Store: Send + Sync + 'static {
    type FoundBucket<'a>: BucketRef;
    fn new() -> Self;
    fn get(&self) -> Option<Self::FoundBucket<'_>>;
    fn id(found: Self::FoundBucket<'_>) -> BucketId;
    /// Gives the key a bucket, if it has none. Returns false if there is no room.
    fn enter(&self, world: &World<Self>) -> bool
    where
        Self: Sized;
}

/// A stand-in for a map: once its first bucket is sealed, the key gets the second.
pub(super) struct Map {
    pub(super) buckets: [Bucket; 2],
    pub(super) entry: AtomicU64,
    /// The bucket of another key.
    pub(super) other: Bucket,
}

impl Store for Map {
    type FoundBucket<'a> = &'a Bucket;

    fn new() -> Map {
        Map { buckets: [Bucket::new(), Bucket::new()], entry: AtomicU64::new(0), other: Bucket::new() }
    }

    fn get(&self) -> Option<&Bucket> {
        let bucket = &self.buckets[self.entry.load(Ordering::Acquire) as usize];
        (bucket.state() != State::SEALED).then_some(bucket)
    }

    fn id(bucket: &Bucket) -> BucketId {
        BucketId::of(bucket)
    }

    fn enter(&self, _: &World<Map>) -> bool {
        if self.buckets[0].state() == State::SEALED {
            self.entry.store(1, Ordering::Release);
        }
        true
    }
}

/// A table of one slot, which the key may get again, or another key may get.
pub(super) struct Inline(pub(super) Table);

impl Inline {
    pub(super) fn of(&self, hash: u64) -> Option<SlotRef<'_>> {
        self.0.search(hash)
    }

    /// Gives the slot to the key of that hash, if the key has none and the slot may be claimed.
    /// Returns whether the key has a slot.
    pub(super) fn enter(&self, world: &World<Inline>, hash: u64) -> bool {
        let engine = &world.engine;
        let claim = self.0.claim(hash, engine, |bucket| world.hot.is_hot(BucketId::of(bucket)));
        if let Ok(claim) = claim
            && let Some(_latch) = self.0.latch(hash)
            && self.of(hash).is_none()
        {
            claim.enter(hash);
            let reading = engine.read();
            claim.open(reading.view(State::FULL).initialized(&reading.refill));
        }
        self.of(hash).is_some()
    }
}

impl Store for Inline {
    type FoundBucket<'a> = SlotRef<'a>;

    fn new() -> Inline {
        Inline(Table::new(1))
    }

    fn get(&self) -> Option<SlotRef<'_>> {
        self.of(HASH)
    }

    fn id(held: SlotRef<'_>) -> BucketId {
        held.id()
    }

    fn enter(&self, world: &World<Inline>) -> bool {
        self.enter(world, HASH)
    }
}

pub(super) const HASH: u64 = 4;
/// Hash of another key, which may get the same slot.
pub(super) const OTHER: u64 = 6;

pub(super) struct World<S> {
    pub(super) store: S,
    pub(super) hot: HotKeys,
    pub(super) engine: Engine,
    pub(super) mock: MockClock,
    pub(super) overflow: Bucket,
    /// The earliest time at which each grant was made, and its tokens.
    pub(super) grants: Mutex<Vec<(u64, u64)>>,
}

impl<S: Store> World<S> {
    /// Creates a world in which one token was granted.
    pub(super) fn new() -> Arc<World<S>> {
        World::of(BURST)
    }

    pub(super) fn of(burst: u64) -> Arc<World<S>> {
        let (clock, mock) = Clock::mock();
        let world = Arc::new(World {
            store: S::new(),
            hot: HotKeys::new(),
            engine: Engine::new(fixed(SLOT, burst), clock, None),
            mock,
            overflow: Bucket::new(),
            grants: Mutex::default(),
        });
        assert!(world.take(0));
        world
    }

    /// Creates a world in which one token was granted, and then the key was promoted.
    pub(super) fn spread() -> Arc<World<S>> {
        let world = World::new();
        world.promote();
        world
    }

    pub(super) fn id(&self) -> BucketId {
        S::id(self.store.get().expect("it has a bucket"))
    }

    pub(super) fn promote(&self) {
        if let Some(found) = self.store.get().filter(|found| found.state().is_level()) {
            let sealed = || found.state() == State::SEALED;
            self.hot.promote(S::id(found), NO_TAG, self.engine.clock.nanos(), sealed);
        }
    }

    /// Takes `n` tokens like a limiter, as a thread of the cell `own`.
    pub(super) fn take_n(&self, own: usize, n: u64) -> bool {
        let since = self.engine.clock.nanos();
        for _ in 0..20 {
            let Some(found) = self.store.get() else {
                if !self.store.enter(self) {
                    return false;
                }
                continue;
            };
            if let Some(granted) = self.take_of(found, S::id(found), own, n) {
                if granted {
                    self.grants.lock().unwrap_or_else(PoisonError::into_inner).push((since, n));
                }
                return granted;
            }
        }
        panic!("no end of rounds");
    }

    pub(super) fn take_of(&self, found: impl BucketRef, id: BucketId, own: usize, n: u64) -> Option<bool> {
        let (engine, now) = (&self.engine, Now(&self.engine));
        let word = match self.hot.found(found, id, engine)? {
            Mode::Plain(word) => word,
            Mode::Spread(spread) => {
                if spread.cells.of(own).take(spread.generation, n).is_some() {
                    return Some(true);
                }
                return Some(spread.acquire(own, now, n)?.is_ok());
            }
        };
        match word.attempt(Order::WordFirst, now, n) {
            Ok((outcome, _)) => Some(outcome.granted),
            Err(Miss::LostRace) => None,
            Err(Miss::StaleReading) => {
                let start = protocol::initial_state(&self.overflow);
                let done = engine.charge(word, Some(start), now, Take::Exactly(n).into())?;
                Some(done.outcome.granted)
            }
        }
    }

    pub(super) fn take(&self, own: usize) -> bool {
        self.take_n(own, 1)
    }

    pub(super) fn drain(&self) {
        while self.take(0) || self.take(1) {}
    }

    pub(super) fn demote(&self) {
        let Some(found) = self.store.get() else { return };
        if let Some(Mode::Spread(spread)) = self.hot.found(found, S::id(found), &self.engine) {
            self.hot.demote(spread);
        }
    }

    pub(super) fn granted_from(&self, moment: u64) -> u64 {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|(since, _)| *since >= moment).map(|(_, n)| n).sum()
    }

    pub(super) fn run(self: &Arc<World<S>>, threads: &[fn(&World<S>)]) {
        run(self, threads);
    }
}

impl World<Map> {
    pub(super) fn remove(&self) {
        if let Some(bucket) = self.store.get()
            && idle::seal(bucket, || ())
        {
            self.hot.drop_leases(BucketId::of(bucket));
        }
    }

    /// Takes a token of a spread bucket by a step, as the verbs do that take no lease. Returns
    /// whether a token was granted.
    pub(super) fn reserve(&self) -> bool {
        let since = self.engine.clock.nanos();
        let Some(bucket) = self.store.get() else { return false };
        let found = self.hot.found(bucket, BucketId::of(bucket), &self.engine);
        let Some(Mode::Spread(spread)) = found else { return false };
        let done = spread.run(Now(&self.engine), Take::Exactly(1));
        let granted = done.is_some_and(|done| done.outcome.granted);
        if granted {
            self.grants.lock().unwrap_or_else(PoisonError::into_inner).push((since, 1));
        }
        granted
    }

    /// Spreads another key in the same hot slot, and takes two tokens of it, one of them from the
    /// cell.
    pub(super) fn spread_other(&self) {
        let other = &self.store.other;
        self.hot.promote(BucketId::of(other), NO_TAG, LATER, || false);
        assert!(self.take_of_other() && self.take_of_other());
    }

    pub(super) fn take_of_other(&self) -> bool {
        let other = &self.store.other;
        let take = || {
            let granted = self.take_of(other, BucketId::of(other), 0, 1);
            if granted.is_none() {
                yield_now();
            }
            granted
        };
        (0..20).find_map(|_| take()).expect("an end of rounds")
    }

    pub(super) fn evict(&self) {
        if let Some(bucket) = self.store.get() {
            let _ = self.hot.seal_if_idle(bucket, BucketId::of(bucket), &self.engine);
        }
    }
}

impl World<Inline> {
    pub(super) fn remove(&self) {
        if let Some(held) = self.store.get()
            && idle::seal(held, || ())
        {
            self.hot.drop_leases(held.id());
            self.store.0.vacate(held, &self.engine);
        }
    }

    /// Takes a token of the other key as a thread of the cell `own`. Returns `None` if there is no
    /// room for that key.
    pub(super) fn take_of_other(&self, own: usize) -> Option<bool> {
        for _ in 0..20 {
            let Some(held) = self.store.of(OTHER) else {
                if !self.store.enter(self, OTHER) {
                    return None;
                }
                continue;
            };
            let granted = self.take_of(held, held.id(), own, 1);
            if granted.is_some() {
                return granted;
            }
            yield_now();
        }
        panic!("no end of rounds");
    }
}

pub(super) fn half_a_slot<S>(world: &World<S>) {
    world.mock.advance(Duration::from_secs(5));
}
