// promise: one-bucket
//! The numbers by which keys and buckets are told apart: hashes, removals, tickets.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::keyed::key::{PrehashedHasher, mix};
use crate::keyed::removals::Removals;
use crate::keyed::ring::{ClockRing, Probe};
use crate::rule::layout::LayoutOptions;
use crate::rule::rate::Quota;
use crate::word::state::State;
use crate::word::terms::Terms;

#[test]
fn hashes_that_differ_in_their_upper_half_differ_in_the_lower_one_after_mixing() {
    let low: HashSet<_> = (0..1_000).map(|upper: u64| mix(upper << 32) & 0xffff_ffff).collect();
    assert_eq!(low.len(), 1_000);
    let high: HashSet<_> = (0..1_000).map(|lower: u64| mix(lower) >> 32).collect();
    assert!(high.len() > 990, "{}", high.len());
}

#[test]
fn a_carried_hash_is_in_both_halves() {
    let mut hasher = PrehashedHasher::default().build_hasher();
    hasher.write_u32(0x1234_5678);
    assert_eq!(hasher.finish(), 0x1234_5678_1234_5678);
}

#[test]
fn a_receipt_outlives_one_removal_of_another_key_in_its_shard() {
    let removals = Removals::new();
    let [own, other] = [7, 8].map(|hash| removals.of(hash));
    let bucket = Bucket::from_state(State::from_word(1));
    let is_there = |then: u64| own.since(then, &bucket).state() != State::SEALED;
    assert!(is_there(own.latest()));
    for round in 1..4 {
        let then = own.latest();
        other.raise();
        assert_eq!(own.latest(), ((round * 2 - 1) << 32) | 8);
        assert!(is_there(then));
        own.raise();
        assert!(!is_there(then), "two removals, the second of this very key");
        assert!(!is_there(own.latest() - (1 << 32)));
    }
    let then = own.latest();
    own.raise();
    assert!(!is_there(then));
}

#[test]
fn a_ring_relies_on_looks_once_it_found_no_room() {
    let ring = ClockRing::new(2);
    assert!(!ring.relies_on_looks());
    for hash in [10, 11] {
        let Ok(mut ticket) = ring.admit(0, |_| Probe::Gone) else { panic!("a ticket is free") };
        ticket.admits(hash);
    }
    assert!(!ring.relies_on_looks());
    let due = ring.admit(5, |_| Probe::Stays { due: 50 }).err();
    assert_eq!(due, Some(Some(50)));
    assert!(ring.relies_on_looks());
    // A bucket that was given tokens is due earlier, so the rest of the hand ends earlier.
    ring.reset_rest(20);
    assert!(ring.admit(20, |_| Probe::Gone).is_ok());
    assert!(!ring.relies_on_looks());
}

/// An entry that the hand has passed in this turn becomes due earlier. The rest after the turn ends
/// then.
#[test]
fn a_turn_of_the_hand_ends_with_the_earliest_time() {
    for (due, told) in [(20, 20), (50, 50), (80, 50)] {
        let ring = ClockRing::new(100);
        for hash in 10..110 {
            let Ok(mut ticket) = ring.admit(0, |_| Probe::Gone) else { panic!("a ticket is free") };
            ticket.admits(hash);
        }
        let stays = || ring.admit(5, |_| Probe::Stays { due: 50 }).err();
        assert_eq!(stays(), Some(Some(5)), "before a whole turn the time is not known");
        assert!(ring.relies_on_looks());
        ring.reset_rest(due);
        assert_eq!(stays(), Some(Some(told)));
    }
}

#[test]
fn a_tombstone_is_no_reserved_word() {
    let terms = Terms::compile(Quota::per_second(10).numbers(), LayoutOptions::DEFAULT).unwrap();
    let last = terms.mask - 3;
    for stamp in [0, 1, last, last + 1, last + 2, last + 3] {
        let tombstone = State::tombstone(&terms, stamp);
        assert!(tombstone.is_level() && !tombstone.is_claimed());
        assert_eq!(tombstone.word() & terms.mask, stamp.min(last));
        assert!(tombstone.stored(&terms) > terms.capacity);
    }
}

#[test]
#[should_panic(expected = "a burst is below the limit of its period")]
fn a_burst_of_the_whole_limit_is_a_sentence_in_a_constant() {
    let _ = Quota::at_most(5, std::time::Duration::from_secs(1)).burst(5);
}

#[test]
fn keys_of_a_table_are_in_all_of_its_sets() {
    // The hasher has the same hashes in each run. At 60 % a table has room for all keys, except by
    // bad luck.
    type Hasher = BuildHasherDefault<DefaultHasher>;
    let limiter = crate::RateLimiter::<u64>::builder(Quota::per_second(10))
        .hasher(Hasher::default())
        .max_keys(1_000)
        .inline()
        .unwrap()
        .when_full(crate::WhenFull::Deny)
        .build();
    assert!((0..600).all(|key| limiter.try_acquire(&key).is_ok()));
    assert_eq!((limiter.stats().keys, limiter.stats().refused_full), (600, 0));
}
