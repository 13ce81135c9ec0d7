// promise: one-bucket
//! Places of keys: the slots of a table, by hash and by address, and the hot slots.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::bucket::engine::Engine;
use crate::bucket::lease::{Lease, LeaseCells, Mode};
use crate::bucket::live_terms::LiveTerms;
use crate::keyed::hot::{HotKeys, HotSlot};
use crate::keyed::id::{BucketId, EntryId};
use crate::keyed::key::KeyQuery;
use crate::keyed::protocol::{Entry, MAX_ROUNDS};
use crate::keyed::store::Known;
use crate::keyed::table::Table;
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::rate::Quota;
use crate::time::clock::Clock;
use crate::word::state::State;

const MS: u64 = 1_000_000;
const TAG: EntryId = EntryId { hash: 3, ticket: 4 };
/// Nanoseconds without demand after which a key is demoted.
const IDLE: u64 = 100 * MS;

fn engine() -> Engine {
    let quota = Quota::per_hour(5);
    Engine::new(LiveTerms::new(quota, quota.layout()), Clock::mock().0, None)
}

fn id(number: u64) -> BucketId {
    BucketId { address: number << 6, fingerprint: 0 }
}

/// Gives a key of that hash a slot. Returns false if there is no room.
fn enter(table: &Table, engine: &Engine, hash: u64) -> bool {
    let Ok(claim) = table.claim(hash, engine, |_| false) else { return false };
    let _latch = table.latch(hash).expect("no other thread has it");
    claim.enter(hash);
    let reading = engine.read();
    // A token is used, so that the key is not evicted.
    claim.open(State::pack(&reading.refill, reading.refill.capacity - reading.refill.units(1), reading.tick));
    true
}

#[test]
fn a_key_of_a_table_is_found_by_its_hash_and_its_address() {
    let (table, engine) = (Table::new(60), engine());
    // Ten sets of eight slots.
    let hashes: Vec<u64> = (1..200_u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let (held, others): (Vec<u64>, Vec<u64>) = hashes.iter().partition(|hash| enter(&table, &engine, **hash));
    assert!((64..=80).contains(&held.len()), "{}", held.len());
    assert_eq!(table.len(), held.len());
    let mut addresses = HashSet::new();
    for hash in &held {
        let found = table.find(*hash).expect("it has a slot");
        assert_eq!(
            (Some(found.id()), table.is_present(*hash)),
            (table.search(*hash).map(|held| held.id()), true)
        );
        let address = found.id().address;
        assert!(addresses.insert(address), "each has a slot of its own");
        assert_eq!(table.held_at(address).map(|held| held.id()), Some(found.id()));
    }
    for hash in others {
        assert!(table.find(hash).is_none() && table.search(hash).is_none() && !table.is_present(hash));
    }
    let (first, last) = (addresses.iter().min().unwrap(), addresses.iter().max().unwrap());
    let size = 10 * 8 * 16;
    assert!(last - first < size);
    assert!(table.held_at(last - size).is_none() && table.held_at(first + size).is_none());
    assert!(table.held_at(0).is_none() && table.held_at(u64::MAX).is_none());

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

/// A latch keeps other keys of its set from entering.
#[test]
fn a_latch_is_held_by_one_thread() {
    let table = Table::new(1);
    let latch = table.latch(7).expect("it is free");
    assert!(table.latch(8).is_none(), "a table of one set has one latch");
    drop(latch);
    assert!(table.latch(8).is_some());
}

/// Notes takes in quick succession in the first cell, the last of them at that time.
fn demand(cells: &LeaseCells, last: u64) {
    (0..40).for_each(|_| _ = cells.of(0).note(last, 0, 1_000));
}

#[test]
fn a_tenure_is_idle_100_ms_after_its_beginning_and_its_last_lease() {
    let hot = HotKeys::new();
    let slot = hot.slot(id(1));
    assert!(slot.give(id(1), TAG, 7).is_some());
    assert_eq!([7, 7 + IDLE, 8 + IDLE].map(|now| slot.is_idle(now)), [false, false, true]);
    demand(&slot.cells, 50 * MS);
    assert_eq!(
        [8 + IDLE, 50 * MS + IDLE, 50 * MS + IDLE + 1].map(|now| slot.is_idle(now)),
        [false, false, true]
    );
}

#[test]
fn a_tenure_ends_early_only_without_a_lease() {
    let hot = HotKeys::new();
    let slot = hot.slot(id(1));
    let tenure = slot.give(id(1), TAG, 0).expect("it is free");
    assert_eq!((slot.tenure(), slot.latest(), hot.len()), (Some(tenure), Some(tenure), 1));
    slot.cells.of(0).put(tenure.generation(), Lease::of(4));
    slot.drop_unused(tenure);
    assert_eq!(slot.tenure(), Some(tenure));
    slot.cells.of(0).put(tenure.generation(), Lease::of(0));
    slot.drop_unused(tenure);
    assert_eq!((slot.tenure(), slot.latest(), hot.len()), (None, None, 0));
}

/// A cell that a thread keeps claimed from an earlier tenure keeps the hot slot free.
#[test]
fn a_hot_slot_is_not_given_while_a_thread_is_at_its_cells() {
    let hot = HotKeys::new();
    let slot = hot.slot(id(1));
    let tenure = slot.give(id(1), TAG, 0).expect("it is free");
    let lease = slot.cells.of(0).lease(tenure.generation());
    assert!(slot.cells.of(0).claim(tenure.generation(), lease));
    slot.leave(tenure);
    assert_eq!((slot.give(id(1), TAG, 0), slot.tenure()), (None, None));
    slot.cells.of(0).put(tenure.generation(), lease);
    let next = slot.give(id(1), TAG, 0).expect("it is free again");
    assert_ne!(next.generation(), tenure.generation());
}

#[test]
fn the_hot_slots_have_a_turn_each() {
    let hot = HotKeys::new();
    let keys = [id(1), id(2), id(3)];
    keys.iter().for_each(|id| hot.promote(*id, TAG, 0, || false));
    let turns = || (0..16_u64).filter(|turn| hot.in_turn(turn << 20).is_some()).count();
    assert_eq!((hot.len(), turns()), (3, 3));
    for turn in 0..16 {
        let [first, last] = [turn << 20, (turn << 20) + (1 << 20) - 1].map(|count| hot.in_turn(count));
        assert_eq!(first.map(std::ptr::from_ref), last.map(std::ptr::from_ref::<HotSlot>));
    }
    assert_eq!(keys.map(|id| hot.is_hot(id)), [true; 3]);
    hot.drop_leases(keys[1]);
    assert_eq!((keys.map(|id| hot.is_hot(id)), hot.len(), turns()), ([true, false, true], 2, 2));
    // A bucket that is sealed meanwhile is not spread.
    hot.promote(keys[1], TAG, 0, || true);
    assert_eq!((hot.is_hot(keys[1]), hot.len()), (false, 2));
}

#[test]
fn cells_that_were_opened_for_another_key_of_a_slot_serve_no_other() {
    let (hot, engine, bucket) = (HotKeys::new(), engine(), Bucket::new());
    let [earlier, now] = [2, 4].map(|fingerprint| BucketId::new(&bucket, fingerprint));
    assert!(matches!(hot.found(&bucket, now, &engine), Some(Mode::Plain(_))));
    hot.promote(earlier, TAG, 0, || false);
    assert!(matches!(hot.found(&bucket, earlier, &engine), Some(Mode::Spread(_))));
    assert!(hot.found(&bucket, now, &engine).is_none());
    assert!(matches!(hot.found(&bucket, now, &engine), Some(Mode::Plain(_))), "the cells are closed");
}

/// Returns limiters that spread contended keys: over a map, and over a table.
fn spreading(clock: &Clock) -> [RateLimiter<u64>; 2] {
    let builder = || RateLimiter::builder(Quota::per_hour(5)).clock(clock.clone()).spread_hot();
    [builder().build(), builder().inline(8).build()]
}

/// A bucket may go while its hot slot is given. Then no call by its key ends the tenure.
#[test]
fn a_hot_slot_of_a_bucket_that_is_gone_is_free_again_when_it_is_idle() {
    let (clock, mock) = Clock::mock();
    for (round, limiter) in (0..).zip(spreading(&clock)) {
        let hot = limiter.inner.keyspace.hot.as_ref().expect("it spreads keys");
        assert!(hot.slot(id(1)).give(id(1), TAG, round * 2 * IDLE).is_some());
        mock.advance(Duration::from_nanos(IDLE));
        assert_eq!((limiter.evict_idle(), hot.len()), (0, 1));
        mock.advance(Duration::from_nanos(IDLE));
        assert_eq!((limiter.evict_idle(), hot.len()), (0, 0));
    }
}

#[test]
fn a_verb_on_a_slot_that_is_spread_for_its_key_before_is_that_of_a_plain_bucket() {
    let [_, limiter] = spreading(&Clock::mock().0);
    let keyspace = &limiter.inner.keyspace;
    let hot = keyspace.hot.as_ref().expect("it spreads keys");
    let hold = limiter.hold(&7, 1).unwrap();
    let promote_earlier = || {
        let pin = keyspace.store.pin();
        let id =
            keyspace.entry(&pin, KeyQuery::new(&limiter.inner.hasher, &7)).get().expect("it is held").id();
        hot.promote(BucketId { fingerprint: !id.fingerprint, ..id }, TAG, 0, || false);
        assert_eq!(hot.len(), 1);
    };
    let left = |expected| assert_eq!((limiter.peek(&7).remaining(), hot.len()), (expected, 0));
    promote_earlier();
    left(4);
    promote_earlier();
    assert_eq!(limiter.try_acquire(&7).map(|granted| granted.remaining()), Ok(3));
    promote_earlier();
    assert_eq!(limiter.acquire_up_to(&7, 2).remaining(), 1);
    promote_earlier();
    assert_eq!(hold.settle(0), 0);
    left(2);
    promote_earlier();
    limiter.refund(&7, 3);
    left(5);
}

/// A clock may let the mode change at each reading, for ever.
#[test]
fn a_step_is_given_up_where_its_bucket_stays_in_no_mode() {
    for limiter in spreading(&Clock::mock().0) {
        assert!(limiter.try_acquire(&7).is_ok());
        let keyspace = &limiter.inner.keyspace;
        let (pin, hot) = (keyspace.store.pin(), keyspace.hot.as_ref().expect("it spreads keys"));
        let found = keyspace.entry(&pin, KeyQuery::new(&limiter.inner.hasher, &7)).get().expect("it is held");
        let rounds = Cell::new(0);
        let step = |_: Mode<'_, _>| {
            rounds.set(rounds.get() + 1);
            None::<()>
        };
        assert!(keyspace.try_modes(hot, Known::of(found), None, step).is_none());
        assert_eq!(rounds.get(), MAX_ROUNDS);
    }
}

#[test]
fn a_lost_race_of_another_key_counts_once_the_candidate_is_forgotten() {
    let hot = HotKeys::new();
    let (slot, [key, other]) = (hot.slot(id(1)), [id(1), id(2)]);
    let lost = |id: BucketId, times: u32, now: u64| (0..times).filter(|_| slot.note_lost(id, now)).count();
    assert_eq!(lost(key, 31, 0), 0);
    assert_eq!((lost(other, 100, 0), lost(key, 1, 0)), (0, 1));
    // After a promotion the count starts anew, for either.
    assert_eq!((lost(key, 31, 0), lost(key, 1, 0)), (0, 1));
    assert_eq!((lost(other, 31, 0), lost(other, 1, 0)), (0, 1));
    // Races of earlier than 10 ms do not count.
    assert_eq!((lost(key, 31, 0), lost(key, 1, 10 * MS + 1), lost(key, 30, 10 * MS + 1)), (0, 0, 0));
    assert_eq!(lost(key, 1, 20 * MS + 1), 1);
}
