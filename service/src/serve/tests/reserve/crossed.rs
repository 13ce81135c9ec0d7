//! Reservations beside all else that a request may have: modes, overrides, amounts, and reloads.

use std::time::Duration;

use tollgate::RateLimiter;
use tollgate_testing::Random;

use super::{Code, Outcome, RULES, SECOND, World, asked};
use crate::serve::messages::{RateLimitOverride, RateLimitRequest};
use crate::serve::reserve::messages::{CommitRequest, ReserveRequest};

fn worlds(given: &[(&'static str, &'static str)]) -> [World; 2] {
    [World::new(given), World::of_store(given)]
}

/// Where a limit in shadow mode has no room, nothing is counted, and the commit counts all.
#[tokio::test(start_paused = true)]
async fn shadow_mode_refuses_nothing() {
    for world in worlds(&[]) {
        let id = world.reserve(&["shadow", "hour"], 150).await.unwrap();
        assert_eq!([world.left("shadow").await, world.left("hour").await], [100, 850]);
        assert_eq!(world.commit(&["shadow", "hour"], &id, 70).await, Outcome::Committed);
        assert_eq!([world.left("shadow").await, world.left("hour").await], [30, 930]);
    }
    for world in worlds(&[("SHADOW_MODE", "true")]) {
        let id = world.reserve(&["minute", "hour"], 150).await.unwrap();
        assert_eq!([world.left("minute").await, world.left("hour").await], [100, 850]);
        assert_eq!(world.commit(&["minute", "hour"], &id, 20).await, Outcome::Committed);
        assert_eq!([world.left("minute").await, world.left("hour").await], [80, 980]);
    }
}

/// A request is refused once all its quotas are used up.
#[tokio::test(start_paused = true)]
async fn a_quota_refuses_beside_no_other() {
    for world in worlds(&[]) {
        assert_eq!(world.reserve(&["quota"], 150).await, None);
        assert_eq!(world.left("quota").await, 100);
        let both = ["quota=a", "quota=b"];
        assert!(world.reserve(&["quota=a"], 100).await.is_some());
        let id = world.reserve(&both, 60).await.unwrap();
        assert_eq!([world.left("quota=a").await, world.left("quota=b").await], [0, 40]);
        assert_eq!(world.commit(&both, &id, 10).await, Outcome::Committed);
        assert_eq!(world.left("quota=b").await, 90);
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_unlimited_unknown_and_shared_limits() {
    for world in worlds(&[]) {
        let id = world.reserve(&["named", "replaces"], 40).await.unwrap();
        assert_eq!([world.left("named").await, world.left("replaces").await], [100, 10]);
        assert_eq!(world.commit(&["named", "replaces"], &id, 10).await, Outcome::Committed);
        assert_eq!([world.left("named").await, world.left("replaces").await], [100, 40]);
        let open = || world.metric(0, "tollgate_serve_reservations_open");
        let before = open();
        for amount in [1, u64::MAX] {
            // Without a limit there is nothing to be settled, and no place is taken.
            let answer = world.reserve_on(0, &["free", "nowhere"], amount, 10).await;
            assert_eq!((answer.code(), answer.reservation_id.len()), (Code::Ok, 0));
            assert_eq!(open(), before);
            assert_eq!(world.commit(&["free", "nowhere"], "", 7).await, Outcome::Reported);
        }
        let id = world.reserve(&["network=10.0.0.1"], 60).await.unwrap();
        assert_eq!(world.left("network=10.0.0.2").await, 40);
        assert_eq!(world.commit(&["network=10.0.0.1"], &id, 10).await, Outcome::Committed);
        assert_eq!(world.left("network=10.0.0.0/24").await, 90);
        assert_eq!(world.left("network=10.0.1.1").await, 100);
        let id = world.reserve(&["shared=a1"], 60).await.unwrap();
        assert_eq!(world.left("shared=a2").await, 40);
        assert_eq!(world.commit(&["shared=a1"], &id, 10).await, Outcome::Committed);
        assert_eq!(world.left("shared=a3").await, 90);
    }
}

#[tokio::test(start_paused = true)]
async fn amounts_at_the_edges() {
    for world in worlds(&[]) {
        for key in ["minute", "bucket", "sliding", "fixed"] {
            for amount in [101, 1 << 33, u64::MAX] {
                assert_eq!(world.reserve(&[key], amount).await, None, "{key}: {amount}");
                assert_eq!(world.left(key).await, 100, "{key}: {amount}");
            }
            // An amount of 0 holds nothing, and its commit counts all.
            let id = world.reserve(&[key], 0).await.unwrap();
            assert_eq!(world.left(key).await, 100);
            assert_eq!(world.commit(&[key], &id, 30).await, Outcome::Committed);
            world.pass(SECOND / 1_000).await;
            assert_eq!(world.left(key).await, 70, "{key}");
            let id = world.reserve(&[key], 70).await.unwrap();
            assert_eq!(world.left(key).await, 0);
            assert_eq!(world.commit(&[key], &id, u64::MAX).await, Outcome::Committed);
            world.pass(SECOND / 1_000).await;
            assert_eq!((world.left(key).await, world.reserve(&[key], 1).await), (0, None), "{key}");
        }
    }
}

/// Hits of descriptors are skipped: a reservation never gives hits back.
#[tokio::test(start_paused = true)]
async fn an_override_holds_and_hits_of_a_descriptor_do_not() {
    for world in worlds(&[]) {
        let RateLimitRequest { domain, mut descriptors, .. } = asked(&["minute"]);
        descriptors[0].hits_addend = Some(1);
        descriptors[0].is_negative_hits = true;
        descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 50, unit: 2 });
        let reserve = |amount| ReserveRequest {
            domain: domain.clone(),
            descriptors: descriptors.clone(),
            amount,
            ttl: None,
        };
        let service = &world.services[0];
        assert_eq!(service.reserve(reserve(60)).await.unwrap().code(), Code::OverLimit);
        let answer = service.reserve(reserve(40)).await.unwrap();
        assert_eq!((answer.code(), world.left("minute").await), (Code::Ok, 60));
        let commit = |descriptors| CommitRequest {
            domain: domain.clone(),
            descriptors,
            reservation_id: super::text_of(answer.reservation_id.clone()),
            actual_amount: 10,
        };
        let other = service.commit(commit(asked(&["minute"]).descriptors)).await.unwrap_err();
        assert_eq!(other.code(), tonic::Code::InvalidArgument);
        assert_eq!(service.commit(commit(descriptors.clone())).await.unwrap().outcome(), Outcome::Committed);
        assert_eq!(world.left("minute").await, 90);
    }
}

/// Counting that stops at a refusal changes nothing: a refused reservation counts nothing anyway.
#[tokio::test(start_paused = true)]
async fn with_counting_that_stops_at_a_refusal() {
    for world in worlds(&[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true")]) {
        assert_eq!(world.reserve(&["hour", "minute"], 150).await, None);
        assert_eq!([world.left("minute").await, world.left("hour").await], [100, 1_000]);
        let id = world.reserve(&["hour", "minute"], 100).await.unwrap();
        assert_eq!(world.commit(&["hour", "minute"], &id, 110).await, Outcome::Committed);
        assert_eq!([world.left("minute").await, world.left("hour").await], [0, 890]);
    }
}

/// Between the reservation and the commit the limit is raised, removed, added, or of another kind.
#[tokio::test(start_paused = true)]
async fn a_reload_between() {
    let of_minute = "{unit: minute, requests_per_unit: 100}\n- key: hour";
    let with = |limit: &str| RULES.replace(of_minute, &format!("{limit}\n- key: hour"));
    for (limit, left, after) in [
        ("{unit: minute, requests_per_unit: 200}", 140, 190),
        // The count of the minute is not given back to another window.
        ("{unit: hour, requests_per_unit: 200}", 140, 140),
        ("{limit: 60/min burst 100}", 40, 40),
    ] {
        let world = World::new(&[]);
        let id = world.reserve(&["minute"], 60).await.unwrap();
        world.load(0, &with(limit));
        assert_eq!(world.left("minute").await, left, "{limit}");
        assert_eq!(world.commit(&["minute"], &id, 10).await, Outcome::Committed);
        assert_eq!(world.left("minute").await, after, "{limit}");
    }
    for world in worlds(&[]) {
        let last = world.services.len() - 1;
        let id = world.reserve(&["minute", "hour"], 60).await.unwrap();
        world.load(last, &with("{unlimited: true}"));
        assert_eq!(world.commit(&["minute", "hour"], &id, 10).await, Outcome::Committed);
        assert_eq!(world.left("hour").await, 990);
    }
    // The limit counted nothing at the reservation, so it counts all at the commit.
    for world in worlds(&[]) {
        (0..world.services.len()).for_each(|service| world.load(service, &with("{unlimited: true}")));
        let id = super::text_of(world.reserve_on(0, &["minute"], 60, 10).await.reservation_id);
        (0..world.services.len()).for_each(|service| world.load(service, RULES));
        assert_eq!(world.commit(&["minute"], &id, 10).await, Outcome::Reported);
        assert_eq!(world.left("minute").await, 90);
    }
}

/// A reload puts a limit in front of those of a list: each of them is settled as before, and the
/// new one counts the whole actual amount.
#[tokio::test(start_paused = true)]
async fn a_reload_that_inserts_into_a_list_between() {
    let rules = |limits: &str| {
        format!("domain: d\ndescriptors:\n- key: list\n  rate_limit: {{limits: [{limits}]}}\n")
    };
    let (hour, day) = ("{unit: hour, requests_per_unit: 100}", "{unit: day, requests_per_unit: 90}");
    let minute = "{unit: minute, requests_per_unit: 60}";
    let world = World::new(&[]);
    let left_of_each = async || {
        let mut all = Vec::new();
        for limit in [minute, hour, day] {
            world.load(0, &rules(limit));
            all.push(world.left("list").await);
        }
        all
    };
    world.load(0, &rules(&format!("{hour}, {day}")));
    let id = world.reserve(&["list"], 50).await.unwrap();
    world.load(0, &rules(&format!("{minute}, {hour}, {day}")));
    assert_eq!(world.commit(&["list"], &id, 20).await, Outcome::Committed);
    assert_eq!(left_of_each().await, [40, 80, 70]);
}

/// `CheckRateLimit` looks whether one more is granted, and `Report` adds in any case.
#[tokio::test(start_paused = true)]
async fn a_check_counts_nothing_and_a_report_is_never_refused() {
    for world in worlds(&[]) {
        for key in ["minute", "bucket", "sliding"] {
            let mut asked = asked(&[key]);
            // A proxy may send any number.
            (asked.hits_addend, asked.descriptors[0].hits_addend) = (7, Some(500));
            let service = &world.services[0];
            for _ in 0..3 {
                assert_eq!(service.check_rate_limit(asked.clone()).await.unwrap().overall_code(), Code::Ok);
            }
            assert_eq!(world.left(key).await, 100, "{key}");
            asked.descriptors[0].hits_addend = Some(99);
            assert_eq!(service.report(&asked).await.unwrap().overall_code(), Code::Ok);
            world.pass(SECOND / 1_000).await;
            assert_eq!(service.check_rate_limit(asked.clone()).await.unwrap().overall_code(), Code::Ok);
            assert_eq!(service.report(&asked).await.unwrap().overall_code(), Code::Ok);
            world.pass(SECOND / 1_000).await;
            let full = service.check_rate_limit(asked.clone()).await.unwrap();
            assert_eq!((full.overall_code(), world.left(key).await), (Code::OverLimit, 0), "{key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_statistics_of_a_limit_have_its_reservations() {
    for world in worlds(&[]) {
        let id = world.reserve(&["minute"], 60).await.unwrap();
        assert_eq!(world.reserve(&["minute"], 60).await, None);
        world.commit_on(0, &["minute"], &id, 20).await;
        let id = world.reserve(&["minute"], 10).await.unwrap();
        world.commit_on(0, &["minute"], &id, 15).await;
        // Those of a limit beside one that refuses go back.
        world.hit("fixed", 90).await;
        assert_eq!(world.reserve(&["minute", "fixed"], 65).await, None);
        assert_eq!(world.reserve(&["minute", "fixed"], 30).await, None);
        let lines = world.services[0].counts.statistics.lines();
        for (name, number) in [
            // Of 60, 60, 10, 5 more, 65, and 30: 35 are used.
            ("total_hits", 230),
            ("over_limit", 20),
            ("within_limit", 170),
            ("total_negative_hits", 135),
        ] {
            let line = format!("rate_limit.d.minute.{name}: {number}\n");
            assert!(lines.contains(&line), "{line} in {lines}");
        }
    }
}

/// A bucket of the service has at most the tokens of one whose holds the library settles. Where it
/// was full before the reservation it has these, or one fewer.
#[tokio::test(start_paused = true)]
async fn a_bucket_is_settled_as_the_holds_of_the_library() {
    let world = World::new(&[]);
    let rule: tollgate::Quota = "60/min burst 100".parse().unwrap();
    let reference = RateLimiter::<u32>::builder(rule).clock(world.clock.clone()).build();
    let mut random = Random(9);
    for round in 0..300 {
        let key = format!("bucket={round}");
        let take = |random: &mut Random| random.below(60);
        let first = if round % 2 == 0 { 0 } else { take(&mut random) };
        assert_eq!(world.hit(&key, first).await == Code::Ok, reference.try_acquire_n(&round, first).is_ok());
        world.pass(Duration::from_millis(random.below(20_000))).await;
        let amount = take(&mut random) + 1;
        let (id, hold) = (world.reserve(&[&key], amount).await, reference.key(&round).n(amount).hold());
        let (Some(id), Ok(hold)) = (&id, hold) else {
            assert!(id.is_none(), "{round}");
            continue;
        };
        world.pass(Duration::from_millis(random.below(9_000))).await;
        let other = take(&mut random);
        assert_eq!(world.hit(&key, other).await == Code::Ok, reference.try_acquire_n(&round, other).is_ok());
        let actual = random.below(amount + 9);
        assert_eq!(world.commit(&[&key], id, actual).await, Outcome::Committed);
        hold.settle(actual);
        let (left, expected) = (u64::from(world.left(&key).await), reference.peek(&round).remaining());
        assert!(left <= expected && (first > 0 || left + 1 >= expected), "{round}: {left} and {expected}");
    }
}
