//! Each row of the table of cases, in one process and over a store.

use super::super::super::reserve::open::MOST_KEPT;
use super::{Code, Outcome, SECOND, World, text_of};

/// Returns a world without a store and one with, under each of which a case is the same.
fn worlds(given: &[(&'static str, &'static str)]) -> [World; 2] {
    [World::new(given), World::of_store(given)]
}

const RELEASE: (&str, &str) = ("TOLLGATE_LAPSED_RESERVATIONS", "release");

#[tokio::test(start_paused = true)]
async fn a_reservation_counts_at_once_and_a_commit_brings_the_count_to_the_actual_amount() {
    for world in worlds(&[]) {
        let keys = [
            ("minute", 100),
            ("hour", 1_000),
            ("bucket", 100),
            ("sliding", 100),
            ("fixed", 100),
            ("first", 100),
        ];
        for (key, full) in keys {
            let id = world.reserve(&[key], 60).await.unwrap();
            assert_eq!(world.left(key).await, full - 60, "{key}");
            assert_eq!(world.commit(&[key], &id, 20).await, Outcome::Committed);
            assert_eq!(world.left(key).await, full - 20, "{key}");
            let id = world.reserve(&[key], 10).await.unwrap();
            assert_eq!(world.commit(&[key], &id, 10).await, Outcome::Committed);
            let id = world.reserve(&[key], 10).await.unwrap();
            assert_eq!(world.commit(&[key], &id, 15).await, Outcome::Committed);
            // The store is told of a charge in the background.
            world.pass(SECOND / 1_000).await;
            assert_eq!(world.left(key).await, full - 45, "{key}");
            let id = world.reserve(&[key], 10).await.unwrap();
            assert_eq!(world.commit(&[key], &id, 0).await, Outcome::Committed);
            assert_eq!(world.left(key).await, full - 45, "{key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_reservation_counts_on_none_of_its_descriptors() {
    for world in worlds(&[]) {
        for (first, second) in
            [("minute", "hour"), ("hour", "minute"), ("bucket", "minute"), ("fixed", "sliding")]
        {
            let before = [world.left(first).await, world.left(second).await];
            let least = before[0].min(before[1]);
            assert_eq!(world.reserve(&[first, second], u64::from(least) + 1).await, None);
            assert_eq!([world.left(first).await, world.left(second).await], before, "{first}, {second}");
            assert!(world.reserve(&[first, second], 10).await.is_some());
            let after = before.map(|left| left - 10);
            assert_eq!([world.left(first).await, world.left(second).await], after, "{first}, {second}");
        }
        assert_eq!(world.metric(0, "tollgate_serve_reservations_total{outcome=\"refused\"}"), 4);
        assert_eq!(world.metric(0, "tollgate_serve_reservations_total{outcome=\"made\"}"), 4);
        assert_eq!(world.metric(0, "tollgate_serve_reservations_open"), 4);
    }
}

/// The tokens were used: they count also beyond the limit.
#[tokio::test(start_paused = true)]
async fn a_commit_of_more_is_charged_beyond_the_limit() {
    for world in worlds(&[]) {
        for key in ["minute", "bucket"] {
            let id = world.reserve(&[key], 90).await.unwrap();
            assert_eq!(world.commit(&[key], &id, 150).await, Outcome::Committed);
            world.pass(SECOND / 1_000).await;
            assert_eq!(world.left(key).await, 0, "{key}");
            assert_eq!(world.reserve(&[key], 1).await, None, "{key}");
        }
        // 50 are owed.
        world.pass(49 * SECOND).await;
        assert_eq!(world.left("bucket").await, 0);
        world.pass(3 * SECOND).await;
        assert!(world.left("bucket").await > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_commit_counts_nothing() {
    for world in worlds(&[]) {
        let id = world.reserve(&["minute"], 60).await.unwrap();
        assert_eq!(world.commit(&["minute"], &id, 20).await, Outcome::Committed);
        for service in 0..world.services.len() {
            for actual in [0, 20, 90] {
                assert_eq!(world.commit_on(service, &["minute"], &id, actual).await, Outcome::Twice);
                assert_eq!(world.left("minute").await, 80);
            }
        }
        let twice = world.metric(0, "tollgate_serve_commits_total{outcome=\"twice\"}");
        assert_eq!(twice, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_lapses_stays_charged_and_a_late_commit_adds_what_is_more() {
    for world in worlds(&[]) {
        for actual in [20, 60, 70] {
            let before = world.left("hour").await;
            let id = world.reserve(&["hour"], 60).await.unwrap();
            world.pass(11 * SECOND).await;
            world.lapse().await;
            assert_eq!(world.left("hour").await, before - 60);
            assert_eq!(world.commit(&["hour"], &id, actual).await, Outcome::Late);
            assert_eq!(world.left("hour").await, before - 60.max(actual as u32));
            assert_eq!(world.commit(&["hour"], &id, actual).await, Outcome::Twice);
        }
        let id = world.reserve(&["hour"], 60).await.unwrap();
        let before = world.left("hour").await;
        world.pass(20 * SECOND).await;
        world.lapse().await;
        // It is too late to be counted.
        assert_eq!(world.commit(&["hour"], &id, 900).await, Outcome::Late);
        assert_eq!(world.left("hour").await, before);
        assert_eq!(world.metric(0, "tollgate_serve_reservations_lapsed_total"), 4);
        assert_eq!(world.metric(0, "tollgate_serve_reservations_open"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_lapses_goes_back_where_the_setting_says_so() {
    for world in worlds(&[RELEASE]) {
        let id = world.reserve(&["hour", "bucket"], 60).await.unwrap();
        world.pass(10 * SECOND).await;
        world.lapse().await;
        assert_eq!([world.left("hour").await, world.left("bucket").await], [1_000, 100]);
        // The amount is no longer charged, so the late commit takes all of it.
        assert_eq!(world.commit(&["hour", "bucket"], &id, 20).await, Outcome::Late);
        world.pass(SECOND / 1_000).await;
        assert_eq!([world.left("hour").await, world.left("bucket").await], [980, 80]);
        assert_eq!(world.commit(&["hour", "bucket"], &id, 20).await, Outcome::Twice);
        // A commit before the lapse is seen leaves nothing to it.
        let id = world.reserve(&["hour"], 60).await.unwrap();
        world.pass(10 * SECOND).await;
        assert_eq!(world.commit(&["hour"], &id, 20).await, Outcome::Late);
        world.lapse().await;
        assert_eq!(world.left("hour").await, 960);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_open_reservations_charged_or_gives_them_back() {
    for (given, left) in [(&[][..], 940), (&[RELEASE][..], 1_000)] {
        for world in worlds(given) {
            world.reserve(&["hour"], 60).await.unwrap();
            world.services[0].lapse(u64::MAX).await;
            assert_eq!(world.left("hour").await, left);
            assert_eq!(world.metric(0, "tollgate_serve_reservations_open"), 0);
        }
    }
}

/// Hits of an earlier window are gone with it: the present one has those of others alone.
#[tokio::test(start_paused = true)]
async fn a_commit_in_a_later_window_gives_nothing_back() {
    for world in worlds(&[]) {
        for key in ["minute", "fixed", "sliding"] {
            for (actual, more) in [(20, 0), (60, 0), (70, 10)] {
                // To the middle of a minute, with nothing in the windows before.
                let into = world.services[0].counts.now().0 % 60;
                world.pass(SECOND * (210 - into as u32)).await;
                let id = super::text_of(world.reserve_on(0, &[key], 60, 59).await.reservation_id);
                world.pass(40 * SECOND).await;
                let before = world.left(key).await;
                assert_eq!(world.hit(key, 30).await, super::Code::Ok, "{key}");
                assert_eq!(world.commit(&[key], &id, actual).await, Outcome::Committed);
                world.pass(SECOND / 1_000).await;
                let after = world.left(key).await;
                assert_eq!(after, before - 30 - more, "{key}: {actual}");
            }
        }
    }
}

/// A bucket that has filled meanwhile would have spilled the tokens.
#[tokio::test(start_paused = true)]
async fn a_bucket_takes_back_the_tokens_for_which_it_has_room() {
    for world in worlds(&[]) {
        let id = super::text_of(world.reserve_on(0, &["bucket"], 60, 59).await.reservation_id);
        // 30 of 60 are earned.
        world.pass(30 * SECOND).await;
        assert_eq!(world.left("bucket").await, 70);
        assert_eq!(world.commit(&["bucket"], &id, 10).await, Outcome::Committed);
        let left = world.left("bucket").await;
        assert!((99..=100).contains(&left), "{left}");
        world.pass(60 * SECOND).await;
        let id = super::text_of(world.reserve_on(0, &["bucket"], 20, 59).await.reservation_id);
        world.pass(30 * SECOND).await;
        assert_eq!(world.hit("bucket", 50).await, super::Code::Ok);
        // It was full before the 50, with or without the reservation.
        assert_eq!(world.commit(&["bucket"], &id, 0).await, Outcome::Committed);
        assert_eq!(world.left("bucket").await, 50);
    }
}

/// Tokens that another commit gave back have filled the bucket: those of this one would be of
/// others.
#[tokio::test(start_paused = true)]
async fn a_bucket_takes_back_no_tokens_beside_those_of_another_reservation() {
    for world in worlds(&[]) {
        let first = text_of(world.reserve_on(0, &["bucket"], 50, 59).await.reservation_id);
        let second = text_of(world.reserve_on(0, &["bucket"], 50, 59).await.reservation_id);
        assert_eq!(world.commit(&["bucket"], &first, 0).await, Outcome::Committed);
        world.pass(50 * SECOND).await;
        assert_eq!(world.hit("bucket", 100).await, Code::Ok);
        assert_eq!(world.commit(&["bucket"], &second, 0).await, Outcome::Committed);
        assert_eq!(world.hit("bucket", 1).await, Code::OverLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_of_another_process_is_known_by_the_store_alone() {
    let world = World::of(2, false, &[]);
    let id = world.reserve(&["minute"], 60).await.unwrap();
    assert_eq!(world.commit(&["minute"], &id, 90).await, Outcome::OtherReplica);
    assert_eq!(world.left("minute").await, 40);
    assert_eq!(world.commit_on(0, &["minute"], &id, 20).await, Outcome::Committed);
    for at in 0..id.len() {
        let other = if &id[at..=at] == "0" { "1" } else { "0" };
        let changed = [&id[..at], other, &id[at + 1..]].concat();
        assert_eq!(world.commit_on(0, &["minute"], &changed, 90).await, Outcome::Unknown, "{changed}");
    }
    for unreadable in ["0", "x", "00000000-0000-0000-0000-000000000000", &id[2..], &id[..id.len() - 2], "é"]
    {
        for world in [&world, &World::of_store(&[])] {
            let before = world.left("minute").await;
            assert_eq!(world.commit(&["minute"], unreadable, 90).await, Outcome::Unknown, "{unreadable}");
            assert_eq!(world.left("minute").await, before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_an_id_is_a_report() {
    for world in worlds(&[]) {
        for left in [70, 40, 10, 0] {
            assert_eq!(world.commit(&["minute"], "", 30).await, Outcome::Reported);
            assert_eq!(world.left("minute").await, left);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn more_reservations_than_the_bound_are_refused_and_count_nothing() {
    for world in worlds(&[("TOLLGATE_MAX_RESERVATIONS", "2")]) {
        let ids = [world.reserve(&["hour"], 10).await.unwrap(), world.reserve(&["hour"], 10).await.unwrap()];
        assert_eq!(world.reserve(&["hour"], 10).await, None);
        assert_eq!(world.left("hour").await, 980);
        assert_eq!(world.metric(0, "tollgate_serve_reservations_total{outcome=\"no_room\"}"), 1);
        assert_eq!(world.commit_on(0, &["hour"], &ids[0], 10).await, Outcome::Committed);
        assert!(world.reserve(&["hour"], 10).await.is_some());
        // A refusal by a limit takes no place.
        assert_eq!(world.commit_on(0, &["hour"], &ids[1], 10).await, Outcome::Committed);
        assert_eq!(world.reserve(&["hour"], 5_000).await, None);
        assert!(world.reserve(&["hour"], 10).await.is_some());
    }
    // Requests that are kept are bounded by their bytes.
    for (given, is_granted) in [(&[][..], true), (&[RELEASE][..], false)] {
        let world = World::new(given);
        let reservations = &world.services[0].reservations;
        let most = reservations.place(9, MOST_KEPT).unwrap();
        assert_eq!(world.reserve(&["hour"], 10).await.is_some(), is_granted);
        drop(most);
        let id = world.reserve(&["hour"], 10).await.unwrap();
        assert_eq!(reservations.kept() > 100, !is_granted);
        assert_eq!(world.commit(&["hour"], &id, 10).await, Outcome::Committed);
        assert_eq!(reservations.kept(), 0);
        world.reserve(&["hour"], 10).await.unwrap();
        world.pass(10 * SECOND).await;
        world.lapse().await;
        assert_eq!(reservations.kept(), 0);
    }
    // In shadow mode the commit without an id counts the tokens.
    let world = World::new(&[("TOLLGATE_MAX_RESERVATIONS", "1"), ("SHADOW_MODE", "true")]);
    assert!(world.reserve(&["hour"], 10).await.is_some());
    let answer = world.reserve_on(0, &["hour"], 10, 10).await;
    assert_eq!((answer.code(), answer.reservation_id.len()), (super::Code::Ok, 0));
}

#[tokio::test(start_paused = true)]
async fn a_time_is_at_most_the_setting_and_that_without_a_time() {
    for (ttl, lasts) in [(0, 30), (10, 10), (1_000, 30)] {
        let world = World::new(&[("TOLLGATE_MAX_RESERVATION_TTL", "30s")]);
        let id = super::text_of(world.reserve_on(0, &["hour"], 10, ttl).await.reservation_id);
        world.pass(SECOND * (lasts - 1)).await;
        world.lapse().await;
        assert_eq!(world.metric(0, "tollgate_serve_reservations_lapsed_total"), 0);
        world.pass(SECOND).await;
        world.lapse().await;
        assert_eq!(world.metric(0, "tollgate_serve_reservations_lapsed_total"), 1, "{ttl}");
        assert_eq!(world.commit(&["hour"], &id, 0).await, Outcome::Late);
    }
}
