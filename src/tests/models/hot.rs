// promise: law, one-bucket
//! A key that is spread over two cells, beside takers, an evictor, and a thread that removes it.
//!
//! A token is earned in ten seconds. The clock moves by less, or by enough to fill the bucket. So
//! the number of tokens granted is known exactly.
//!
//! Two models are left out of the runs in which each load may return older values as well: they
//! have too many interleavings there.

mod scene;

#[cfg(any(shuttle, rmw_loads))]
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use self::scene::{BURST, Inline, LATER, LONG, Map, OTHER, World, half_a_slot};
#[cfg(any(shuttle, rmw_loads))]
use self::scene::{NO_TAG, Store};
use super::explore;
use crate::word::state::State;

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
