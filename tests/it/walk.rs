// promise: law, never-late
//! Random sequences through the public face, compared with the ideal bucket after every step.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tollgate::{RateLimiter, WhenFull};
use tollgate_testing::reference::steps::Move;
use tollgate_testing::reference::strategies::{amounts, moves, own, percents, starts, steps};

use super::{InStore, Room, in_table};
use crate::bucket_walk::{verbs, walk};
use crate::reference::face::Face;
use crate::reference::keyed::probe::Alike;
use crate::reference::keyed::{Case, End, Pace, Verb};
use crate::reference::quotas::asked;
use crate::support::{Time, cases, quotas};

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_limiter_of_one_key_keeps_to_the_ideal(
        quota in quotas(),
        start in starts(),
        steps in steps(moves(), own(), verbs(), 120),
    ) {
        let (clock, time) = Time::new();
        let limiter = RateLimiter::stored(quota).clock(clock).room(1).build();
        walk(&Face::key(limiter), time, quota, start, steps);
    }
}

#[test]
fn keys_that_come_and_go_keep_to_their_ideals() {
    let (takes, evicted) = (Cell::new(0), Cell::new(0));
    let walked = TestRunner::new(cases(3_000)).run(&limiters(), |case| {
        let verbs = case.steps.iter().map(|(.., verb)| verb);
        takes.set(takes.get() + verbs.filter(|verb| matches!(verb, Verb::Take(_))).count());
        evicted.set(evicted.get() + case.run());
        Ok(())
    });
    walked.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} takes, {} evicted", takes.get(), evicted.get());
    assert!(evicted.get() * 50 > takes.get() as u64, "hardly anything was evicted: {}", evicted.get());
}

/// Returns limiters of a few keys, with the steps of a case.
fn limiters() -> impl Strategy<Value = Case> {
    let policies = prop_oneof![Just(WhenFull::Share), Just(WhenFull::Deny), Just(WhenFull::Allow)];
    let hashers = prop_oneof![3 => Just(0), 1 => 1..3_usize].prop_map(|which| Alike::ALL[which]);
    let initials = prop_oneof![9 => Just(None), 1 => amounts().prop_map(Some)];
    let limiter = (quotas(), policies, 1..9_usize, hashers, initials, starts());
    let moves = prop_oneof![8 => moves(), 2 => any::<u8>().prop_map(Move::Sixteenths)];
    let step = (moves, 0..5_u64, Just(Pace::Own), keyed_verbs());
    (limiter, prop::collection::vec(step, 1..160)).prop_map(
        |((quota, policy, max_keys, hasher, initial, start), steps)| Case {
            quota: asked(quota),
            policy,
            max_keys,
            inline: in_table(),
            hasher,
            initial,
            plans: None,
            start,
            steps,
        },
    )
}

fn keyed_verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        24 => amounts().prop_map(Verb::Take),
        3 => amounts().prop_map(Verb::TakePinned),
        3 => (amounts(), percents()).prop_map(|(n, percent)| Verb::Above(n, percent)),
        3 => amounts().prop_map(Verb::UpTo),
        2 => amounts().prop_map(|n| Verb::Reserve(n, End::Used)),
        2 => amounts().prop_map(|n| Verb::Reserve(n, End::Dropped)),
        2 => (amounts(), amounts()).prop_map(|(n, actual)| Verb::Hold(n, actual)),
        2 => amounts().prop_map(Verb::Refund),
        3 => Just(Verb::Remove),
        8 => Just(Verb::EvictIdle),
        1 => (1..9_u8).prop_map(Verb::Flood),
    ]
}
