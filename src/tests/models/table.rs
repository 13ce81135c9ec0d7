// promise: law, one-bucket
//! A fixed table: keys enter it, and take each other's slots. It is the production code, with sets
//! of one slot.
//!
//! A key earns a tenth of a token a second. Seven models are left out of the runs in which each
//! load may return older values as well: there most of them did not end within minutes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::checker::thread;
use super::explore;
use super::world::{SECOND, assert_law, attempt, attempt_again, fixed, fixed_window};
use crate::bucket::atomic::{Bucket, Miss, Order, ReadClock};
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::Settle;
use crate::keyed::idle;
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::table::{Insertion, SlotRef, Table};
use crate::quota::window::Window;
use crate::sync::yield_now;
use crate::time::clock::{Clock, MockClock};
use crate::word::decision::Denied;
use crate::word::verb::{Call, Take};

/// The time to earn a token, the eviction grace, and 0.1 s more.
const FULL_FOR_THE_MARGIN: Duration = Duration::from_millis(12_100);

/// Indexes of two keys. The home of both is set 0, and their other set is set 1, if there is one.
const ADA: usize = 0;
const BOB: usize = 1;

const ADA_TAKES: fn(&World) = |world| {
    world.take(ADA);
};
const BOB_TAKES: fn(&World) = |world| {
    world.take(BOB);
};

struct World {
    engine: Engine,
    mock: MockClock,
    table: Table,
    hashes: [u64; 2],
    /// The overflow buckets, which keys without room share. Here each key has its own.
    overflows: [Bucket; 2],
    /// The time at which each grant is earned, and its tokens.
    grants: [Mutex<Vec<(u64, u64)>>; 2],
}

impl World {
    fn new(slots: usize, burst: u64) -> Arc<World> {
        World::of(slots, fixed(10 * SECOND, burst))
    }

    /// Creates a world of windows of this many tokens each 12 s, by the calendar.
    fn of_windows(slots: usize, limit: u64) -> Arc<World> {
        World::of(slots, fixed_window(Window::per(limit, Duration::from_secs(12)).utc()))
    }

    fn of(slots: usize, live: LiveTerms) -> Arc<World> {
        let (clock, mock) = Clock::mock();
        let table = Table::new(slots);
        let mut hashes = (1..).map(|n: u64| n << 1).filter(|hash| table.has_sets(*hash, [0, slots - 1]));
        let hashes = [(); 2].map(|()| hashes.next().expect("there are such hashes"));
        Arc::new(World {
            engine: Engine::new(live, clock, None),
            mock,
            table,
            hashes,
            overflows: [Bucket::new(), Bucket::new()],
            grants: [const { Mutex::new(Vec::new()) }; 2],
        })
    }

    /// Takes a token, like a limiter in which keys without room share a bucket. Returns whether one
    /// was granted.
    fn take(&self, key: usize) -> bool {
        let (hash, engine) = (self.hashes[key], &self.engine);
        let found = self.table.find(hash).ok_or(Miss::StaleReading);
        let first = found.and_then(|held| attempt(engine, Order::WordFirst, held, 1));
        let again = |missed| {
            let held = self.table.search(hash).filter(|_| missed == Miss::LostRace);
            held.and_then(|held| attempt_again(engine, held, 1))
        };
        let done = first.or_else(|missed| again(missed).ok_or(())).ok();
        done.map_or_else(|| self.take_by_the_loop(key), |done| self.note(key, done.into()))
    }

    /// Takes a token by the loop, as the verbs do that make no attempt. Returns whether one was
    /// granted.
    fn take_by_the_loop(&self, key: usize) -> bool {
        let call = Take::Exactly(1).into();
        let seat = Seat { world: self, key };
        protocol::acquire(&self.engine, seat, Now(&self.engine), call).is_ok_and(|done| self.note(key, done))
    }

    /// Notes a grant. Returns whether the outcome is one.
    fn note(&self, key: usize, Done { outcome, reading, .. }: Done) -> bool {
        if outcome.granted {
            let mut grants = self.grants[key].lock().unwrap_or_else(PoisonError::into_inner);
            grants.push((reading.nanos(), 1));
        }
        outcome.granted
    }

    fn drain(&self, key: usize) {
        for _ in 0..20 {
            if !self.take(key) {
                return;
            }
        }
        panic!("no end of grants");
    }

    fn granted(&self, key: usize) -> usize {
        self.grants[key].lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn assert_law(&self, burst: u64) {
        for grants in &self.grants {
            assert_law(&grants.lock().unwrap_or_else(PoisonError::into_inner), 10 * SECOND, burst);
        }
    }

    fn pass(&self) {
        self.mock.advance(FULL_FOR_THE_MARGIN);
    }

    fn remove(&self, key: usize) {
        let Some(held) = self.table.search(self.hashes[key]) else { return };
        if idle::forgets_in_place(&self.engine) {
            idle::forget(&self.engine, held, || ());
        } else if idle::seal(held, || ()) {
            self.table.vacate(held, &self.engine);
        }
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

#[derive(Clone, Copy)]
struct Seat<'a> {
    world: &'a World,
    key: usize,
}

impl<'a> Entry<'a> for Seat<'a> {
    type BucketRef = SlotRef<'a>;

    fn get(self) -> Option<SlotRef<'a>> {
        self.world.table.search(self.world.hashes[self.key])
    }

    fn is_present(self) -> bool {
        self.world.table.is_present(self.world.hashes[self.key])
    }

    fn insert(self, read: impl ReadClock, call: Call) -> Option<Result<Done, Denied>> {
        let World { engine, table, hashes, .. } = self.world;
        match table.insert(engine, self, hashes[self.key], read, call) {
            Insertion::Decided(done) => Some(Ok(done)),
            Insertion::Already => None,
            Insertion::NoRoom { .. } => protocol::acquire_overflow(engine, self, read, call).map(Ok),
        }
    }

    fn back_off(self) {
        yield_now();
    }

    fn remove_sealed(self) {}

    fn overflow_bucket(self) -> &'a Bucket {
        &self.world.overflows[self.key]
    }
}

#[test]
fn a_key_has_one_slot() {
    explore("two newcomers of one key", || {
        let world = World::new(2, 1);
        world.run(&[
            |world| world.drain(ADA),
            |world| {
                world.mock.advance(Duration::from_secs(1));
                world.take(ADA);
            },
        ]);
        world.drain(ADA);
        // A thread that finds the latch taken uses the overflow bucket. Its take there is void, and
        // the token lost, if the key has a slot after it.
        assert!(world.granted(ADA) <= 1, "{} grants", world.granted(ADA));
    });
}

#[test]
fn two_newcomers_of_a_set_find_a_slot_each() {
    explore("two newcomers of one set", || {
        let world = World::new(2, 1);
        world.run(&[ADA_TAKES, BOB_TAKES]);
        world.drain(ADA);
        world.drain(BOB);
        assert_eq!((world.granted(ADA), world.granted(BOB)), (1, 1));
    });
}

/// A slot may go to another key while a caller decides on it. The caller is then not charged there,
/// nor is the other key charged for the caller.
#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_slot_that_changes_hands_is_charged_for_its_own_key() {
    explore("a taker, a newcomer that gets the slot", || {
        let world = World::new(1, 2);
        world.take(ADA);
        world.run(&[
            |world| {
                world.pass();
                world.take(BOB);
            },
            ADA_TAKES,
        ]);
        world.drain(BOB);
        assert_eq!(world.granted(BOB), 2);
        world.drain(ADA);
        assert!(world.granted(ADA) <= 3, "{} grants", world.granted(ADA));
        world.assert_law(2);
    });
}

/// A bucket that is full, but has not been full for the eviction grace, keeps its slot: its key's
/// next caller may have an earlier clock.
#[test]
fn a_slot_is_not_given_away_within_the_margin() {
    explore("a newcomer 1.9 s ahead", || {
        let world = World::new(1, 1);
        world.mock.advance(Duration::from_secs(100));
        world.take(ADA);
        world.run(&[|world| world.mock.advance(Duration::from_millis(11_900)), BOB_TAKES, ADA_TAKES]);
        let kept = world.table.search(world.hashes[ADA]).is_some();
        assert!(kept, "it was full for 1.9 s");
        world.drain(ADA);
        world.drain(BOB);
        world.assert_law(1);
    });
}

/// An inserting thread that was stopped reads the clock when it goes on.
#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_newcomer_that_was_stopped_reads_the_clock_anew() {
    explore("a newcomer, a generation of the key meanwhile", || {
        let world = World::new(2, 1);
        world.run(&[ADA_TAKES, |world| {
            world.take(ADA);
            world.pass();
            world.table.evict_idle(|bucket| idle::seal_if_idle(&world.engine, bucket) == Ok(true));
        }]);
        world.drain(ADA);
        world.assert_law(1);
    });
}

/// A removed key leaves no word in its slot that the next key could have as well. A late take would
/// charge the next key by it.
#[test]
fn a_removed_key_charges_nobody_after_it() {
    explore("a taker, a remover, a newcomer", || {
        let world = World::new(1, 2);
        world.take(ADA);
        world.run(&[ADA_TAKES, |world| {
            world.remove(ADA);
            world.take(BOB);
        }]);
        world.drain(BOB);
        assert_eq!(world.granted(BOB), 2);
    });
}

/// Runs a taker whose slot is another key's between two checks of its fingerprint. A refusal must
/// be that of the key's own bucket.
#[cfg(any(shuttle, rmw_loads))]
fn two_keys_have_the_slot_beside(name: &'static str, taker: fn(&World)) {
    explore(name, move || {
        let world = World::new(1, 4);
        world.take(ADA);
        world.run(&[taker, |world| {
            world.pass();
            world.drain(BOB);
            // (If the slot changed hands by eviction, the bucket would have been full for the
            // eviction grace. A reading that is later still would find it full.)
            world.remove(BOB);
            world.mock.advance(Duration::from_millis(2_100));
            world.take(ADA);
        }]);
        world.assert_law(4);
    });
}

#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_refusal_is_the_keys_own() {
    two_keys_have_the_slot_beside("a taker, two keys that have the slot after it", |world| {
        assert!(world.take(ADA), "there is a token at any time");
    });
}

#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_refusal_by_the_loop_is_the_keys_own() {
    two_keys_have_the_slot_beside("a taker by the loop, two keys that have the slot after it", |world| {
        assert!(world.take_by_the_loop(ADA), "there is a token at any time");
    });
}

#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_key_that_gets_a_slot_brings_its_debts() {
    explore("two without room, until there is some", || {
        let world = World::new(1, 1);
        world.take(BOB);
        world.mock.advance(Duration::from_millis(11_500));
        world.run(&[ADA_TAKES, |world| {
            world.mock.advance(Duration::from_secs(1));
            world.take(ADA);
        }]);
        world.drain(ADA);
        assert!(world.granted(ADA) <= 1, "{} grants", world.granted(ADA));
    });
}

/// A refund to a slot that has gone to another key gives that key no tokens.
#[test]
fn a_refund_is_for_its_own_key() {
    explore("a refund, a newcomer that gets the slot", || {
        let world = World::new(1, 2);
        world.take(ADA);
        world.mock.advance(Duration::from_secs(12));
        world.run(&[
            |world| {
                if let Some(held) = world.table.search(world.hashes[ADA]) {
                    world.engine.settle(held, None, Settle::Refund(1));
                }
            },
            |world| {
                world.mock.advance(Duration::from_millis(100));
                world.drain(BOB);
            },
        ]);
        world.drain(BOB);
        assert_eq!(world.granted(BOB), 2);
    });
}

#[test]
fn a_table_counts_what_it_holds() {
    explore("a newcomer, a remover, an evictor", || {
        let world = World::new(2, 1);
        world.take(ADA);
        world.run(&[
            |world| {
                world.take(BOB);
                world.remove(ADA);
            },
            |world| {
                world.pass();
                world.table.evict_idle(|bucket| idle::seal_if_idle(&world.engine, bucket) == Ok(true));
            },
        ]);
        let held = [ADA, BOB].map(|key| usize::from(world.table.search(world.hashes[key]).is_some()));
        assert_eq!(world.table.len(), held.iter().sum());
    });
}

/// A removed key of a window keeps its slot until the window is over: within a tick, the next key
/// of the slot could have the same word.
#[test]
fn a_removed_window_is_charged_to_no_other_key() {
    explore("a taker, a remover of its window, a newcomer", || {
        let world = World::of_windows(1, 2);
        world.take(ADA);
        world.run(&[ADA_TAKES, |world| {
            world.remove(ADA);
            world.take(BOB);
        }]);
        world.drain(BOB);
        assert_eq!(world.granted(BOB), 2);
    });
}

/// A window that is over, but not for the eviction grace, keeps its slot: the key's next caller may
/// have an earlier clock.
#[test]
fn a_window_keeps_its_slot_within_the_margin() {
    explore("a newcomer 1.9 s after a window", || {
        let world = World::of_windows(1, 1);
        world.mock.advance(Duration::from_secs(11));
        world.take(ADA);
        world.run(&[|world| world.mock.advance(Duration::from_millis(2_900)), BOB_TAKES, ADA_TAKES]);
        assert!(world.table.search(world.hashes[ADA]).is_some(), "its window was over for 1.9 s");
        world.drain(ADA);
        world.drain(BOB);
        // One of each window.
        assert!(world.granted(ADA) <= 2 && world.granted(BOB) <= 2);
    });
}

/// The slot of a window goes to another key while a taker decides on it.
#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_slot_of_a_window_that_changes_hands_is_charged_for_its_own_key() {
    explore("a taker, a newcomer that gets the slot of its window", || {
        let world = World::of_windows(1, 2);
        world.mock.advance(Duration::from_secs(11));
        world.take(ADA);
        world.run(&[
            |world| {
                world.mock.advance(Duration::from_millis(3_100));
                world.take(BOB);
            },
            ADA_TAKES,
        ]);
        world.drain(BOB);
        assert_eq!(world.granted(BOB), 2);
        world.drain(ADA);
        // Two of each window.
        assert!(world.granted(ADA) <= 4, "{} grants", world.granted(ADA));
    });
}

#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_key_that_gets_a_slot_brings_the_tokens_that_its_window_used() {
    explore("two without room, until a window is over", || {
        let world = World::of_windows(1, 1);
        world.take(BOB);
        world.mock.advance(Duration::from_millis(13_500));
        world.run(&[ADA_TAKES, |world| {
            world.mock.advance(Duration::from_secs(1));
            world.take(ADA);
        }]);
        world.drain(ADA);
        assert!(world.granted(ADA) <= 1, "{} grants", world.granted(ADA));
    });
}
