//! Models of the production code under loom, on a clock that moves while the threads run.
//!
//! Run them as `RUSTFLAGS="--cfg loom --cfg rmw_loads" cargo test --lib --release loom` and without
//! `rmw_loads` (see `src/sync.rs`). papaya is not made for loom: the one place of a key in the map is a stand-in, an
//! atomic index into buckets made ahead; the protocol on it is the production code of `src/entry.rs`.
//!
//! The clock and the quota are chosen so that one grant too many breaks the law: a tenth of a token a second,
//! a burst of 1, and at most 12.1 s in all make 1 + 1.21, so 2 grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use loom::thread;

use crate::bucket::Bucket;
use crate::clock::{Clock, MockClock};
use crate::entry::{Place, Rules};
use crate::state::State;
use crate::sync::{AtomicU64, Ordering};
use crate::terms::Terms;

const SECOND: u64 = 1_000_000_000;
/// The time to fill the bucket, and the margin, and a little.
const FULL_FOR_THE_MARGIN: Duration = Duration::from_millis(12_100);

/// Explores `f`, at most `LOOM_MAX_PREEMPTIONS` (3) preemptions each, and prints how many executions it took.
fn explore(name: &str, f: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(move || {
        count.fetch_add(1, Relaxed);
        f();
    });
    println!("{name}: {} executions", executions.load(Relaxed));
    assert!(executions.load(Relaxed) > 10, "the model has hardly any interleavings");
}

/// The place of one key in the map.
struct Place1 {
    /// Index of the key's bucket and 1; 0 if it has no entry.
    entry: AtomicU64,
    buckets: [Bucket; 4],
    used: AtomicU64,
}

impl Place1 {
    fn empty() -> Place1 {
        Place1 {
            entry: AtomicU64::new(0),
            buckets: [Bucket::new(), Bucket::new(), Bucket::new(), Bucket::new()],
            used: AtomicU64::new(0),
        }
    }

    /// A new bucket, if there was no entry.
    fn insert(&self) -> Option<&Bucket> {
        let index = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        let inserted = self.entry.compare_exchange(0, index, Ordering::AcqRel, Ordering::Acquire);
        inserted.ok().and_then(|_| self.bucket(index))
    }

    fn bucket(&self, entry: u64) -> Option<&Bucket> {
        entry.checked_sub(1).map(|index| &self.buckets[index as usize])
    }
}

impl Place for Place1 {
    fn find(&self) -> Option<&Bucket> {
        self.bucket(self.entry.load(Ordering::Acquire))
    }

    fn bury(&self) {
        let entry = self.entry.load(Ordering::Acquire);
        if self.bucket(entry).is_some_and(|bucket| bucket.state() == State::SEALED) {
            let _ = self.entry.compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// A limiter with one key.
struct World {
    rules: Rules,
    place: Place1,
    overflow: Bucket,
    mock: MockClock,
    granted: AtomicUsize,
}

impl World {
    /// A tenth of a token a second, and this burst.
    fn new(burst: u64) -> Arc<World> {
        World::with(Terms::compile(1, 10 * SECOND, burst).unwrap())
    }

    fn with(terms: Terms) -> Arc<World> {
        let (clock, mock) = Clock::mock();
        Arc::new(World {
            rules: Rules { terms, clock },
            place: Place1::empty(),
            overflow: Bucket::new(),
            mock,
            granted: AtomicUsize::new(0),
        })
    }

    fn need(&self) -> u64 {
        self.rules.terms.need(1).unwrap()
    }

    fn count(&self, granted: bool) {
        self.granted.fetch_add(usize::from(granted), Relaxed);
    }

    /// Takes a token of the key, which gets an entry if it has none.
    fn take(&self) {
        let granted = self.rules.acquire(
            &self.place,
            self.need(),
            &self.overflow,
            |outcome, _| outcome.granted,
            || {
                let bucket = self.place.insert()?;
                let charged = self.rules.first_charge(bucket, self.need(), &self.overflow);
                charged.map(|(outcome, _)| outcome.granted)
            },
        );
        self.count(granted);
    }

    /// Takes a token of the key, for which there is no room in the map.
    fn take_without_room(&self) {
        let granted = self.rules.acquire(
            &self.place,
            self.need(),
            &self.overflow,
            |outcome, _| outcome.granted,
            || {
                let outcome = self.rules.acquire_overflow(&self.place, self.need(), &self.overflow);
                outcome.map(|(outcome, _)| outcome.granted)
            },
        );
        self.count(granted);
    }

    fn evict(&self) {
        if let Some(bucket) = self.place.find()
            && self.rules.seal_if_idle(bucket).is_ok()
        {
            self.place.bury();
        }
    }

    /// Takes from one bucket, on a clock that is `behind`.
    fn take_from(&self, bucket: &Bucket, behind: u64) {
        let terms = &self.rules.terms;
        let granted = bucket.drive(
            || self.rules.clock.nanos() - behind,
            |state, now| {
                let (outcome, next) = state.take(terms, terms.ticks.tick(now), self.need());
                (outcome.granted, next)
            },
        );
        self.count(granted);
    }

    fn granted(&self) -> usize {
        self.granted.load(Relaxed)
    }

    fn run(self: &Arc<World>, threads: &[fn(&World)]) {
        let threads: Vec<_> = threads
            .iter()
            .map(|run| {
                let (world, run) = (Arc::clone(self), *run);
                thread::spawn(move || run(&world))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn two_takers_share_one_token() {
    explore("two takers, one token", || {
        let world = World::new(1);
        let take: fn(&World) = |world| world.take_from(&world.overflow, 0);
        world.run(&[take, take, |world| world.mock.advance(Duration::from_secs(5))]);
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn what_is_earned_meanwhile_is_granted_once() {
    explore("two takers, a token earned meanwhile", || {
        let world = World::new(1);
        world.take_from(&world.overflow, 0);
        let take: fn(&World) = |world| world.take_from(&world.overflow, 0);
        world.run(&[take, take, |world| world.mock.advance(Duration::from_secs(10))]);
        take(&world);
        assert_eq!(world.granted(), 2);
    });
}

#[test]
fn a_stale_reading_never_refills() {
    explore("a taker that is 2 s behind", || {
        // A token a second: were the stamp moved back, the 2 s would be earned again.
        let world = World::with(Terms::compile(1, SECOND, 2).unwrap());
        world.mock.advance(Duration::from_secs(100));
        let take: fn(&World) = |world| world.take_from(&world.overflow, 0);
        let stale: fn(&World) = |world| world.take_from(&world.overflow, 2 * SECOND);
        take(&world);
        world.run(&[stale, take, |world| world.mock.advance(Duration::from_millis(500))]);
        take(&world);
        stale(&world);
        take(&world);
        assert_eq!(world.granted(), 2);
    });
}

#[test]
fn a_clock_set_back_mints_nothing() {
    explore("a clock set back by a minute", || {
        let world = World::new(1);
        world.mock.advance(Duration::from_secs(100));
        world.take_from(&world.overflow, 0);
        let take: fn(&World) = |world| world.take_from(&world.overflow, 0);
        world.run(&[take, take, |world| world.mock.rewind(Duration::from_secs(60))]);
        world.mock.advance(Duration::from_secs(9));
        take(&world);
        assert_eq!(world.granted(), 1);
    });
}

/// The clock is read again after a lost race: an older reading would set the stamp back.
#[test]
fn a_reading_from_before_a_lost_race_is_not_used() {
    explore("two takers, 9 s meanwhile", || {
        let world = World::new(2);
        world.mock.advance(Duration::from_secs(100));
        let take: fn(&World) = |world| world.take_from(&world.overflow, 0);
        take(&world);
        world.run(&[take, take, |world| world.mock.advance(Duration::from_secs(9))]);
        take(&world);
        assert_eq!(world.granted(), 2);
    });
}

#[test]
fn a_coarse_clock_is_never_behind_the_stamp() {
    explore("a clock in memory", || {
        let world = World::new(2);
        world.run(&[
            |world| world.mock.advance(Duration::from_secs(1)),
            |world| world.take_from(&world.overflow, 0),
            |world| {
                let terms = &world.rules.terms;
                let view = world.overflow.drive(
                    || world.rules.clock.nanos(),
                    |state, now| (state.at(terms, terms.ticks.tick(now)), None),
                );
                assert_eq!(view.lag, 0);
            },
        ]);
    });
}

#[test]
fn two_first_users_of_a_key_share_its_bucket() {
    explore("two first users", || {
        let world = World::new(1);
        world.run(&[World::take, World::take, |world| world.mock.advance(Duration::from_secs(5))]);
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn a_taker_and_an_evictor() {
    explore("two takers, an evictor", || {
        let world = World::new(1);
        world.take();
        world.run(&[|world| world.mock.advance(FULL_FOR_THE_MARGIN), World::evict, World::take, World::take]);
        world.take();
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

#[test]
fn two_evictors() {
    explore("two evictors, a taker", || {
        let world = World::new(1);
        world.take();
        world.run(&[
            |world| world.mock.advance(FULL_FOR_THE_MARGIN),
            World::evict,
            World::evict,
            World::take,
        ]);
        world.take();
        assert_eq!(world.granted(), 2);
    });
}

/// A bucket that is full, but not yet for the margin, is not evicted: the evictor's clock may be ahead.
#[test]
fn an_evictor_that_is_ahead_waits_for_the_margin() {
    explore("an evictor 1.9 s ahead", || {
        let world = World::new(1);
        world.mock.advance(Duration::from_secs(100));
        world.take();
        world.run(&[
            |world| world.mock.advance(Duration::from_millis(9_900)),
            |world| {
                let terms = &world.rules.terms;
                if let Some(bucket) = world.place.find() {
                    let ahead = || world.rules.clock.nanos() + 1_900_000_000;
                    let idle = bucket.drive(ahead, |state, now| {
                        let idle = state.evictable_in(terms, terms.ticks.tick(now)) == 0;
                        (idle, idle.then_some(State::SEALED))
                    });
                    if idle {
                        world.place.bury();
                    }
                }
            },
            World::take,
        ]);
        world.take();
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn removing_a_key_races_with_its_takers() {
    explore("remove, two takers", || {
        let world = World::new(1);
        world.run(&[
            |world| {
                world.mock.advance(Duration::from_secs(1));
                if let Some(bucket) = world.place.find() {
                    world.rules.seal(bucket);
                    world.place.bury();
                }
            },
            World::take,
            World::take,
        ]);
        // One for each life of the key.
        assert!((1..=2).contains(&world.granted()));
    });
}

#[test]
fn a_key_that_enters_the_map_brings_its_debts() {
    explore("overflow and first use", || {
        let world = World::new(1);
        world.run(&[World::take_without_room, World::take, |world| {
            world.mock.advance(Duration::from_secs(1))
        }]);
        world.take();
        world.take_without_room();
        assert!(world.granted() <= 1, "{} grants", world.granted());
    });
}

#[test]
fn an_overflow_grant_is_void_if_an_entry_came_and_went() {
    explore("overflow, first use and eviction", || {
        let world = World::new(1);
        world.run(&[World::take_without_room, World::take, |world| {
            world.mock.advance(FULL_FOR_THE_MARGIN);
            world.evict();
        }]);
        world.take();
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}
