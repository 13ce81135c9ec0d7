//! Outages of the store at each step, and restarts.

use tonic::Code as StatusCode;

use super::{Layout, Outcome, SECOND, World, asked, text_of};
use crate::serve::counts::{CountOptions, LimitCounts};
use crate::serve::reserve::messages::CommitRequest;
use tollgate_common::state_file::SavedPart;

const RELEASE: (&str, &str) = ("TOLLGATE_LAPSED_RESERVATIONS", "release");

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

/// The mark has had its effect, and its answer is late: the repeated commit knows it as its own.
#[tokio::test(start_paused = true)]
async fn a_commit_whose_mark_is_answered_late_may_be_repeated() {
    for given in [&[][..], &[RELEASE][..]] {
        for actual in [90, 20] {
            let world = World::of_store(given);
            let id = world.reserve(&["minute"], 60).await.unwrap();
            world.delay_store(2_000);
            assert_eq!(failing(&world, &id, actual).await, StatusCode::Unavailable);
            world.delay_store(0);
            world.pass(SECOND).await;
            world.pass(SECOND).await;
            assert_eq!(world.commit(&["minute"], &id, actual).await, Outcome::Committed);
            world.pass(SECOND / 1_000).await;
            assert_eq!(u64::from(world.left("minute").await), 100 - actual);
            assert_eq!(world.commit(&["minute"], &id, actual).await, Outcome::Twice);
        }
    }
}

/// A client that hangs up while the store is asked ends nothing half-done.
#[tokio::test(start_paused = true)]
async fn a_call_whose_client_hangs_up_is_done_as_a_whole() {
    let world = World::of_store(&[]);
    let id = world.reserve(&["hour"], 60).await.unwrap();
    let hangs_up = SECOND / 200;
    world.delay_store(10);
    let commit = world.commit(&["hour"], &id, 20);
    assert!(tokio::time::timeout(hangs_up, commit).await.is_err());
    world.pass(SECOND / 10).await;
    world.delay_store(0);
    assert_eq!(world.left("hour").await, 980);
    assert!(world.reserve(&["minute"], 100).await.is_some());
    world.delay_store(10);
    let refused = world.reserve(&["hour", "minute"], 10);
    assert!(tokio::time::timeout(hangs_up, refused).await.is_err());
    world.pass(SECOND / 10).await;
    world.delay_store(0);
    assert_eq!(world.left("hour").await, 980);
}

/// The marks of that layout end with their hour: used tokens never go back after it.
#[tokio::test(start_paused = true)]
async fn in_the_layout_of_envoy_a_lapse_in_the_next_hour_gives_nothing_back() {
    let world = World::of_layout(2, Some(Layout::Envoy), &[RELEASE]);
    let rules = "domain: d\ndescriptors:\n- key: day\n  rate_limit: {unit: day, requests_per_unit: 1000}\n";
    (0..2).for_each(|service| world.load(service, rules));
    for (waits, left) in [(0, 940), (3_530, 880)] {
        world.pass(waits * SECOND).await;
        let id = text_of(world.reserve_on(0, &["day"], 60, 60).await.reservation_id);
        world.pass(5 * SECOND).await;
        assert_eq!(world.commit(&["day"], &id, 60).await, Outcome::Committed);
        world.pass(55 * SECOND).await;
        world.lapse().await;
        assert_eq!(world.left("day").await, left);
    }
    // One without a commit goes back in its hour.
    world.reserve_on(0, &["day"], 60, 60).await;
    world.pass(60 * SECOND).await;
    world.lapse().await;
    assert_eq!(world.left("day").await, 880);
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
        // The store is told of a bucket with its next request.
        assert!(world.reserve(&[key], 1).await.is_some());
        world.pass(SECOND / 10).await;
        let left = world.left(key).await;
        assert!((79 - granted..=82 - granted).contains(&left), "{key}: {left} and {granted}");
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
    assert_eq!(world.metric(0, "tollgate_serve_reservations_lapsed_total"), 1);
}

/// Reservations that lapse at the same time wait for the store at the same time.
#[tokio::test(start_paused = true)]
async fn a_hundred_reservations_lapse_by_a_few_rounds_of_the_store() {
    let world = World::of_store(&[RELEASE]);
    for value in 0..100 {
        world.reserve(&[&format!("hour={value}")], 60).await.unwrap();
    }
    world.pass(10 * SECOND).await;
    world.delay_store(10);
    let began = tokio::time::Instant::now();
    world.lapse().await;
    assert!(began.elapsed() <= SECOND / 20, "{:?}", began.elapsed());
    world.delay_store(0);
    for value in 0..100 {
        assert_eq!(world.left(&format!("hour={value}")).await, 1_000);
    }
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
