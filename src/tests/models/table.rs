// promise: law, one-bucket
//! A fixed table: keys enter it, and take each other's slots. It is the production code, with sets
//! of one slot.
//!
//! A key earns a tenth of a token a second. Seven models are left out of the runs in which each
//! load may return older values as well: there most of them did not end within minutes.

pub(super) mod scene;

use std::time::Duration;

use self::scene::{ADA, ADA_TAKES, BOB, BOB_TAKES, FULL_FOR_THE_MARGIN, World};
use super::explore;
use crate::bucket::atomic::BucketRef;
use crate::bucket::receipt::Settle;
use crate::keyed::table::Set;

#[test]
#[cfg_attr(all(loom, not(rmw_loads)), ignore = "700,000 executions: in the full run")]
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

/// The word of a key may be that of a slot that was never taken. Such a slot goes to the first
/// thread that changes its fingerprint, so a thread that saw it empty does not get it from the key.
#[test]
fn a_slot_that_was_never_taken_is_not_taken_by_a_word_of_a_key() {
    explore("a newcomer with a word of 0, a claim", || {
        let world = World::new(1, 1);
        world.run(&[
            |world| world.take_the_debt(ADA),
            |world| drop(world.table.claim(world.hashes[BOB], &world.engine)),
        ]);
        if let Some(held) = world.table.search(world.hashes[ADA]) {
            assert_eq!(held.state().word(), 0);
        }
        assert!(!world.take(ADA), "it has the deepest debt");
        assert_eq!((world.table.len(), world.table.evicted()), (1, 0));
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
            world.evict_idle();
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
                world.evict_idle();
            },
        ]);
        let held = [ADA, BOB].map(|key| usize::from(world.table.search(world.hashes[key]).is_some()));
        assert_eq!(world.table.len(), held.iter().sum());
    });
}

/// A restore takes slots by stores, while no decision inserts a key.
#[test]
fn a_restored_key_has_one_slot() {
    explore("a restore of a token, a newcomer of its key", || {
        let world = World::new(2, 1);
        world.run(&[|world| world.restore(ADA, 1, Set::Secondary), ADA_TAKES]);
        world.drain(ADA);
        assert!(world.granted(ADA) <= 1, "{} grants", world.granted(ADA));
        assert_eq!(world.table.len(), 1);
    });
    explore("a restore of no token, another newcomer", || {
        let world = World::new(2, 1);
        world.run(&[|world| world.restore(ADA, 0, Set::Primary), BOB_TAKES]);
        world.drain(ADA);
        world.drain(BOB);
        assert_eq!((world.granted(ADA), world.granted(BOB)), (0, 1));
    });
    explore("two restores at once, of a key each", || {
        let world = World::new(1, 1);
        world.run(&[
            |world| world.restore(ADA, 0, Set::Primary),
            |world| {
                world.restore(BOB, 0, Set::Primary);
            },
        ]);
        world.drain(ADA);
        world.drain(BOB);
        assert_eq!((world.granted(ADA), world.granted(BOB)), (0, 0));
    });
}

/// A restored key that finds no room shares a bucket. It is limited as well if another thread gives
/// it a slot meanwhile.
#[test]
#[cfg_attr(all(loom, not(rmw_loads)), ignore = "1,800,000 executions: in the full run")]
fn a_restored_key_without_room_is_limited() {
    explore("a restore of no token in a table in use, a newcomer of its key", || {
        let world = World::new(1, 2);
        world.take(BOB);
        world.remove(BOB);
        world.mock.advance(FULL_FOR_THE_MARGIN);
        world.run(&[|world| world.restore(ADA, 0, Set::Primary), ADA_TAKES]);
        world.drain(ADA);
        assert!(world.granted(ADA) <= 1, "{} grants", world.granted(ADA));
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
