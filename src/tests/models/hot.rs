// promise: law, one-bucket
//! A key that is spread over two cells, beside takers, an evictor, and a thread that removes it.
//!
//! A token is earned in ten seconds. The clock moves by less, or by enough to fill the bucket. So
//! the number of tokens granted is known exactly.
//!
//! Two models are left out of the runs in which each load may return older values as well: they
//! have too many interleavings there.

#[cfg(any(shuttle, rmw_loads))]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::checker::thread;
use super::explore;
use super::world::{SECOND, fixed};
use crate::bucket::atomic::{Bucket, BucketRef, Miss, Order};
use crate::bucket::engine::{Engine, Now};
use crate::bucket::lease::Mode;
use crate::keyed::hot::HotKeys;
use crate::keyed::id::BucketId;
use crate::keyed::id::EntryId;
use crate::keyed::idle;
use crate::keyed::protocol;
use crate::keyed::table::{SlotRef, Table};
use crate::sync::{AtomicU64, Ordering, yield_now};
use crate::time::clock::{Clock, MockClock};
use crate::word::state::State;
use crate::word::verb::Take;

const NO_TAG: EntryId = EntryId { hash: 0, ticket: 0 };

/// The time that earns one token, in nanoseconds.
const SLOT: u64 = 10 * SECOND;
const BURST: u64 = 4;
/// Longer than the time to fill any bucket plus the eviction grace.
const LONG: Duration = Duration::from_secs(100);
const LATER: u64 = 100 * SECOND;

/// A store that has the bucket of the key.
trait Store: Send + Sync + 'static {
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
struct Map {
    buckets: [Bucket; 2],
    entry: AtomicU64,
    /// The bucket of another key.
    other: Bucket,
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
struct Inline(Table);

impl Inline {
    fn of(&self, hash: u64) -> Option<SlotRef<'_>> {
        self.0.search(hash)
    }

    /// Gives the slot to the key of that hash, if the key has none and the slot may be claimed.
    /// Returns whether the key has a slot.
    fn enter(&self, world: &World<Inline>, hash: u64) -> bool {
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

const HASH: u64 = 4;
/// Hash of another key, which may get the same slot.
const OTHER: u64 = 6;

struct World<S> {
    store: S,
    hot: HotKeys,
    engine: Engine,
    mock: MockClock,
    overflow: Bucket,
    /// The earliest time at which each grant was made, and its tokens.
    grants: Mutex<Vec<(u64, u64)>>,
}

impl<S: Store> World<S> {
    /// Creates a world in which one token was granted.
    fn new() -> Arc<World<S>> {
        World::of(BURST)
    }

    fn of(burst: u64) -> Arc<World<S>> {
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
    fn spread() -> Arc<World<S>> {
        let world = World::new();
        world.promote();
        world
    }

    fn id(&self) -> BucketId {
        S::id(self.store.get().expect("it has a bucket"))
    }

    fn promote(&self) {
        if let Some(found) = self.store.get().filter(|found| found.state().is_level()) {
            let sealed = || found.state() == State::SEALED;
            self.hot.promote(S::id(found), NO_TAG, self.engine.clock.nanos(), sealed);
        }
    }

    /// Takes `n` tokens like a limiter, as a thread of the cell `own`.
    fn take_n(&self, own: usize, n: u64) -> bool {
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

    fn take_of(&self, found: impl BucketRef, id: BucketId, own: usize, n: u64) -> Option<bool> {
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

    fn take(&self, own: usize) -> bool {
        self.take_n(own, 1)
    }

    fn drain(&self) {
        while self.take(0) || self.take(1) {}
    }

    fn demote(&self) {
        let Some(found) = self.store.get() else { return };
        if let Some(Mode::Spread(spread)) = self.hot.found(found, S::id(found), &self.engine) {
            self.hot.demote(spread);
        }
    }

    fn granted_from(&self, moment: u64) -> u64 {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|(since, _)| *since >= moment).map(|(_, n)| n).sum()
    }

    fn run(self: &Arc<World<S>>, threads: &[fn(&World<S>)]) {
        let spawn = |run: &fn(&World<S>)| {
            let (world, run) = (Arc::clone(self), *run);
            thread::spawn(move || run(&world))
        };
        let threads: Vec<_> = threads.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl World<Map> {
    fn remove(&self) {
        if let Some(bucket) = self.store.get()
            && idle::seal(bucket, || ())
        {
            self.hot.drop_leases(BucketId::of(bucket));
        }
    }

    /// Takes a token of a spread bucket by a step, as the verbs do that take no lease. Returns
    /// whether a token was granted.
    fn reserve(&self) -> bool {
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
    fn spread_other(&self) {
        let other = &self.store.other;
        self.hot.promote(BucketId::of(other), NO_TAG, LATER, || false);
        assert!(self.take_of_other() && self.take_of_other());
    }

    fn take_of_other(&self) -> bool {
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

    fn evict(&self) {
        if let Some(bucket) = self.store.get() {
            let _ = self.hot.seal_if_idle(bucket, BucketId::of(bucket), &self.engine);
        }
    }
}

impl World<Inline> {
    fn remove(&self) {
        if let Some(held) = self.store.get()
            && idle::seal(held, || ())
        {
            self.hot.drop_leases(held.id());
            self.store.0.vacate(held, &self.engine);
        }
    }

    /// Takes a token of the other key as a thread of the cell `own`. Returns `None` if there is no
    /// room for that key.
    fn take_of_other(&self, own: usize) -> Option<bool> {
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

fn half_a_slot<S>(world: &World<S>) {
    world.mock.advance(Duration::from_secs(5));
}

#[test]
fn a_key_that_is_spread_beside_a_taker_is_granted_its_burst() {
    explore("a promoter, a taker", || {
        let world = World::<Map>::new();
        world.run(&[
            |world| {
                world.promote();
                world.take(0);
            },
            |world| {
                half_a_slot(world);
                world.take(1);
            },
        ]);
        world.drain();
        assert_eq!(world.granted_from(0), BURST);
    });
}

/// A taker that has not seen the promotion does not refill the bucket beside a lease.
#[test]
fn a_taker_who_comes_late_sees_the_lease() {
    explore("a promoter, a taker, a long time meanwhile", || {
        let world = World::<Map>::new();
        world.mock.advance(LONG);
        world.run(&[
            |world| {
                world.promote();
                world.take(0);
                world.mock.advance(LONG);
            },
            |world| {
                world.take(1);
            },
        ]);
        world.drain();
        assert!(world.granted_from(2 * LATER) <= BURST, "{:?}", world.grants);
    });
}

#[test]
fn a_key_that_is_spread_is_not_evicted() {
    explore("a spender, an evictor", || {
        let world = World::<Map>::new();
        world.promote();
        world.take(0);
        world.run(&[
            |world| {
                world.take(0);
            },
            |world| {
                world.mock.advance(LONG);
                world.evict();
                world.take_n(1, 4);
            },
        ]);
        world.drain();
        assert!(world.granted_from(LATER) <= BURST, "{:?}", world.grants);
    });
}

/// Either the bucket stays and has the lease, or it is evicted and no lease is taken.
#[test]
fn a_lease_is_not_of_a_bucket_that_is_evicted() {
    explore("a promoter that leases, an evictor", || {
        let world = World::<Map>::new();
        world.mock.advance(LONG);
        world.run(&[
            |world| {
                world.promote();
                world.take(0);
            },
            |world| {
                half_a_slot(world);
                world.evict();
            },
        ]);
        world.drain();
        assert_eq!(world.granted_from(LATER), BURST);
    });
}

/// The tokens are there all the time: first in the word, then in the word and on lease. Under loom
/// a taker that yields waits for the thread that leases.
#[test]
#[cfg_attr(shuttle, ignore = "a thread that is stopped while it takes a lease hides that lease")]
fn a_take_is_granted_while_another_thread_leases() {
    explore("a taker of three, a thread that leases", || {
        let world = World::<Map>::of(5);
        world.promote();
        world.run(&[
            |world| assert!(world.take_n(1, 3)),
            |world| {
                half_a_slot(world);
                assert!(world.take(0));
            },
        ]);
        assert_eq!(world.granted_from(0), 5);
    });
}

/// The token is there all the time: first on lease, then in the word.
#[test]
fn a_token_that_comes_back_from_a_lease_is_granted() {
    explore("a taker, a thread that demotes", || {
        let world = World::<Map>::spread();
        while world.granted_from(0) < BURST - 1 {
            assert!(world.take(0));
        }
        world.run(&[|world| assert!(world.take(1)), |world| world.demote()]);
    });
}

/// An evicted bucket is not spread, so no hot slot has the address of a bucket that is gone.
#[test]
fn a_bucket_that_was_evicted_is_not_spread() {
    explore("a promoter, an evictor", || {
        let world = World::<Map>::new();
        let id = world.id();
        world.mock.advance(LONG);
        world.run(&[
            |world| world.promote(),
            |world| {
                half_a_slot(world);
                world.evict();
            },
        ]);
        assert_ne!(
            world.hot.slot(id).tenure_of(id).is_some(),
            world.store.buckets[0].state() == State::SEALED
        );
    });
}

#[test]
fn what_folds_back_beside_a_spender_is_granted_once() {
    explore("a demoter, a spender", || {
        let world = World::<Map>::of(8);
        world.promote();
        // Four tokens are in the word, and none in the cells.
        assert!(world.take(0) && world.take(0) && world.take(0));
        world.run(&[
            |world| world.demote(),
            |world| {
                world.take(0);
                half_a_slot(world);
                world.take(0);
            },
        ]);
        world.drain();
        assert_eq!(world.granted_from(0), 8);
    });
}

/// Tokens spent from the leases leave no room for tokens that were earned while the leases were
/// out.
#[test]
fn what_folds_back_mints_nothing() {
    explore("a demoter, a spender, a long time before", || {
        let world = World::<Map>::spread();
        world.take(0);
        world.mock.advance(LONG);
        world.run(&[
            |world| {
                world.demote();
                world.take_n(1, 3);
            },
            |world| {
                world.take(0);
                world.take(0);
            },
        ]);
        world.drain();
        assert!(world.granted_from(LATER) <= BURST, "{:?}", world.grants);
    });
}

/// Two threads demote the key, and one of them is late. The late one leaves the cells of the next
/// tenure alone.
#[test]
fn a_key_folds_back_once() {
    explore("two demoters, a promoter", || {
        let world = World::<Map>::spread();
        world.take(0);
        world.run(&[
            |world| world.demote(),
            |world| {
                world.demote();
                world.promote();
                world.take(1);
            },
        ]);
        world.drain();
        assert_eq!(world.granted_from(0), BURST);
    });
}

/// The next key in the slot gets no lease of the removed key.
#[test]
fn a_key_that_was_removed_leaves_no_lease() {
    explore("a remover, a taker", || {
        let world = World::<Inline>::spread();
        world.take(0);
        world.run(&[
            |world| {
                world.remove();
                // The slot may be given to a key again.
                world.mock.advance(LONG);
            },
            |world| {
                world.take(0);
            },
        ]);
        world.drain();
        // One token may have gone to a take that began before that time.
        let granted = world.granted_from(LATER);
        assert!((BURST - 1..=BURST).contains(&granted), "{granted}");
    });
}

#[test]
fn a_slot_that_is_spread_is_not_given_away() {
    explore("a spender, a key that needs a slot", || {
        let world = World::<Inline>::spread();
        world.take(0);
        world.run(&[
            |world| {
                world.take(0);
            },
            |world| {
                world.mock.advance(LONG);
                let _ = world.take_of_other(1);
            },
        ]);
        assert!(world.store.of(OTHER).is_none());
        world.drain();
        assert!(world.granted_from(LATER) <= BURST, "{:?}", world.grants);
    });
}

/// A thread that spreads a slot late, when another key has the slot, takes none of that key's
/// tokens.
#[test]
#[cfg(any(shuttle, rmw_loads))]
fn a_slot_that_is_spread_late_serves_nobody_else() {
    // Executions in which the other key got the slot.
    let others = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&others);
    explore("a promoter that takes, a key that gets the slot", move || {
        let world = World::<Inline>::new();
        world.mock.advance(LONG);
        world.run(&[
            |world| {
                let Some(found) = world.store.get() else { return };
                world.hot.promote(found.id(), NO_TAG, LATER, || false);
                let _ = world.take_of(found, found.id(), 0, 1);
            },
            |world| {
                let _ = world.take_of_other(0);
            },
        ]);
        if world.store.of(OTHER).is_some() {
            let took = |own| world.take_of_other(own) == Some(true);
            assert_eq!(1 + (0..20).filter(|_| took(0) || took(1)).count() as u64, BURST);
            count.fetch_add(1, Relaxed);
        }
    });
    assert!(others.load(Relaxed) > 0, "the other key never got the slot");
}

/// A thread that found a key spread may be stopped until another key has the cells. It then takes
/// no token of that key, and does not count that key's leases.
#[test]
#[cfg(any(shuttle, rmw_loads))]
fn the_next_key_that_has_the_cells_serves_itself() {
    explore("a taker, a demoter that spreads another key", || {
        let world = World::<Map>::spread();
        assert!(world.take_of_other());
        world.mock.advance(LONG);
        world.run(&[
            |world| {
                world.take(0);
            },
            |world| {
                world.demote();
                world.spread_other();
            },
        ]);
        world.drain();
        assert_eq!(world.granted_from(LATER), BURST);
        assert_eq!(2 + (0..20).filter(|_| world.take_of_other()).count() as u64, BURST);
    });
}

/// A lease of another key takes no room from a demoted key.
#[test]
fn leases_of_the_next_key_that_has_the_cells_are_its_own() {
    explore("a reserver, a demoter that spreads another key", || {
        let world = World::<Map>::spread();
        assert!(world.take_of_other());
        world.mock.advance(LONG);
        world.run(&[
            |world| {
                world.reserve();
            },
            |world| {
                world.demote();
                world.spread_other();
            },
        ]);
        world.drain();
        assert_eq!(world.granted_from(LATER), BURST);
    });
}

/// A thread that demotes a key while the key is removed leaves the cells to the next key.
#[test]
fn cells_that_were_closed_are_opened_again_for_their_own_key() {
    explore("a demoter, a remover that spreads another key", || {
        let world = World::<Map>::spread();
        assert!(world.take_of_other());
        world.mock.advance(LONG);
        world.run(&[
            |world| world.demote(),
            |world| {
                world.remove();
                world.spread_other();
            },
        ]);
        assert_eq!(2 + (0..20).filter(|_| world.take_of_other()).count() as u64, BURST);
    });
}
