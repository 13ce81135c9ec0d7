// promise: one-bucket
//! Places of keys: the slots of a table, by hash.

use std::collections::HashSet;

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::bucket::live_terms::LiveTerms;
use crate::keyed::table::Table;
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::word::state::State;

fn engine() -> Engine {
    let quota = Quota::per_hour(5);
    Engine::new(LiveTerms::new(quota, quota.layout()), Clock::mock().0, None)
}

/// Gives a key of that hash a slot, with a stamp of its own. Returns false if there is no room.
fn enter(table: &Table, engine: &Engine, hash: u64) -> bool {
    let Some(claim) = table.claim(hash, engine) else { return false };
    let _latch = table.latch(hash).expect("no other thread has it");
    claim.enter(hash);
    let reading = engine.read();
    // A token is used, so that the key is not evicted.
    let level = reading.refill.capacity - reading.refill.units(1);
    claim.open(State::pack(&reading.refill, level, reading.tick + table.len() as u64));
    true
}

#[test]
fn a_key_of_a_table_is_found_by_its_hash() {
    let (table, engine) = (Table::new(60).unwrap(), engine());
    // Ten sets of eight slots.
    let hashes: Vec<u64> = (1..200_u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let (held, others): (Vec<u64>, Vec<u64>) = hashes.iter().partition(|hash| enter(&table, &engine, **hash));
    assert!((64..=80).contains(&held.len()), "{}", held.len());
    assert_eq!(table.len(), held.len());
    let mut states = HashSet::new();
    for hash in &held {
        let found = table.find(*hash).expect("it has a slot").state();
        assert_eq!(table.search(*hash).map(|held| held.state()), Some(found));
        assert!(table.present(*hash).is_some());
        assert!(states.insert(found.word()), "each has a slot of its own");
    }
    for hash in others {
        assert!(table.find(hash).is_none() && table.search(hash).is_none() && table.present(hash).is_none());
    }

    // Every second key goes.
    for hash in held.iter().step_by(2) {
        let slot = table.search(*hash).expect("it has a slot");
        assert!(slot.commit(slot.state(), State::SEALED).is_ok());
        assert!(table.search(*hash).is_none(), "it is sealed");
        table.vacate(slot, &engine);
        assert!(table.find(*hash).is_none());
    }
    assert_eq!(table.len(), held.len() / 2);
    assert!(held.iter().skip(1).step_by(2).all(|hash| table.search(*hash).is_some()));
}

/// Zeroed memory is a slot that was never taken, but a key's word may be 0.
#[test]
fn a_key_whose_word_is_zero_keeps_its_slot() {
    let (table, engine) = (Table::new(1).unwrap(), engine());
    let Some(claim) = table.claim(7, &engine) else { panic!("all slots are empty") };
    claim.enter(7);
    claim.open(State::from_word(0));
    assert_eq!((8..100).filter(|hash| enter(&table, &engine, *hash)).count(), 7);
    assert_eq!(table.search(7).map(BucketRef::state), Some(State::from_word(0)));
}

/// A latch keeps other keys of its set from entering.
#[test]
fn a_latch_is_held_by_one_thread() {
    let table = Table::new(1).unwrap();
    let latch = table.latch(7).expect("it is free");
    assert!(table.latch(8).is_none(), "a table of one set has one latch");
    drop(latch);
    assert!(table.latch(8).is_some());
}
