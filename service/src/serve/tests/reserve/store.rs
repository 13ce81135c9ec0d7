//! Outages of the store at each step, and restarts.

use tonic::Code as StatusCode;

use super::{Outcome, SECOND, World, asked};
use crate::serve::counts::{CountOptions, LimitCounts};
use crate::serve::reserve::messages::CommitRequest;
use tollgate_common::state_file::SavedPart;

/// Commits, and returns the status of the error.
async fn failing(world: &World, id: &str, actual_amount: u64) -> StatusCode {
    let asked = asked(&["minute"]);
    let (domain, descriptors) = (asked.domain, asked.descriptors);
    let request = CommitRequest { domain, descriptors, reservation_id: id.to_owned(), actual_amount };
    world.services[1].commit(request).await.unwrap_err().code()
}

/// Nothing is counted by a commit that the store does not answer, so it may be repeated.
#[tokio::test(start_paused = true)]
async fn an_outage_at_the_commit_is_said_and_the_commit_may_be_repeated() {
    let world = World::of_store(&[]);
    let id = world.reserve(&["minute"], 60).await.unwrap();
    world.fail_store(true);
    assert_eq!(failing(&world, &id, 20).await, StatusCode::Unavailable);
    world.fail_store(false);
    world.pass(SECOND).await;
    world.pass(SECOND).await;
    assert_eq!(world.commit(&["minute"], &id, 20).await, Outcome::Committed);
    assert_eq!(world.left("minute").await, 80);
    assert_eq!(world.commit(&["minute"], &id, 20).await, Outcome::Twice);
}

/// Without the store the policy of the outage decides: each of two replicas has half of the rest.
#[tokio::test(start_paused = true)]
async fn an_outage_at_the_reservation_is_decided_by_its_policy() {
    for key in ["minute", "bucket"] {
        let world = World::of_store(&[]);
        world.reserve(&[key], 20).await.unwrap();
        world.fail_store(true);
        assert_eq!(world.reserve(&[key], 60).await, None, "{key}");
        let mut granted = 0;
        while world.reserve(&[key], 8).await.is_some() {
            granted += 8;
        }
        assert!((32..=40).contains(&granted), "{key}: {granted}");
        // Two limits, of which one refuses: the other one keeps nothing.
        assert_eq!(world.reserve(&["hour", key], 8).await, None);
        let whole = world.reserve(&["hour"], 500).await;
        assert!(whole.is_some(), "{key}");
        world.fail_store(false);
        world.pass(SECOND).await;
        world.pass(SECOND).await;
        let left = world.left(key).await;
        assert!((80 - granted..=83 - granted).contains(&left), "{key}: {left} and {granted}");
        assert_eq!(world.left("hour").await, 500);
    }
}

/// The reservation was counted by the policy, and the store was told of it: the commit settles it.
#[tokio::test(start_paused = true)]
async fn a_reservation_of_an_outage_is_settled_after_it() {
    let world = World::of_store(&[]);
    assert_eq!(world.left("minute").await, 100);
    world.fail_store(true);
    let id = world.reserve(&["minute"], 40).await.unwrap();
    world.fail_store(false);
    world.pass(SECOND).await;
    world.pass(SECOND).await;
    assert_eq!(world.left("minute").await, 60);
    assert_eq!(world.commit(&["minute"], &id, 10).await, Outcome::Committed);
    assert_eq!(world.left("minute").await, 90);
}

/// The store does not answer at the lapse: the amount goes back when it does.
#[tokio::test(start_paused = true)]
async fn an_outage_at_the_lapse_delays_it() {
    let world = World::of_store(&[("TOLLGATE_LAPSED_RESERVATIONS", "release")]);
    world.reserve(&["hour"], 60).await.unwrap();
    world.pass(10 * SECOND).await;
    world.fail_store(true);
    world.lapse().await;
    world.fail_store(false);
    world.pass(SECOND).await;
    world.pass(SECOND).await;
    world.lapse().await;
    assert_eq!(world.left("hour").await, 1_000);
}

/// Of two replicas that settle at once, one does.
#[tokio::test(start_paused = true)]
async fn two_replicas_settle_a_reservation_once() {
    let world = World::of_store(&[]);
    for _ in 0..50 {
        let id = world.reserve(&["hour"], 10).await.unwrap();
        let before = world.left("hour").await;
        let (one, other) =
            tokio::join!(world.commit_on(0, &["hour"], &id, 4), world.commit_on(1, &["hour"], &id, 4));
        let mut both = [one, other];
        both.sort_by_key(|outcome| *outcome as i32);
        assert_eq!(both, [Outcome::Committed, Outcome::Twice]);
        assert_eq!(world.left("hour").await, before + 6);
    }
}

/// The counts outlive a restart with the reservation in them. Its id is then that of another
/// process: it stays charged as reserved.
#[tokio::test(start_paused = true)]
async fn after_a_restart_a_reservation_stays_charged() {
    let mut world = World::new(&[]);
    let id = world.reserve(&["minute"], 60).await.unwrap();
    let counts = &world.services[0].counts;
    let mut parts = vec![SavedPart { name: "secret".to_owned(), bytes: counts.hasher.key().to_vec() }];
    let put = |name: &str, bytes: &[u8]| {
        parts.push(SavedPart { name: name.to_owned(), bytes: bytes.to_vec() });
        Ok(())
    };
    counts.each_part(put).unwrap();
    let options = CountOptions { clock: world.clock.clone(), max_keys: 10_000, ..CountOptions::default() };
    let restored = LimitCounts::of_saved(&mut parts, &options);
    let service = crate::serve::state::Service::of(world.settings(), restored);
    world.services = vec![std::sync::Arc::new(service)];
    world.load(0, super::RULES);
    parts.iter().for_each(|part| world.services[0].counts.restore(part).unwrap());
    assert_eq!(world.left("minute").await, 40);
    assert_eq!(world.commit(&["minute"], &id, 20).await, Outcome::OtherReplica);
    assert_eq!(world.left("minute").await, 40);
}
