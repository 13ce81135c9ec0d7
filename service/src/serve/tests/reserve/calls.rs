//! The calls over sockets: their paths, their bounds, their statuses, and tasks at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::super::client::{Client, request, serve};
use super::{Code, CommitResponse, Outcome, ReserveResponse, SECOND, World, asked};
use crate::serve::front::Protocol;
use crate::serve::messages::{RateLimitRequest, RateLimitResponse};
use crate::serve::reserve::messages::{CommitRequest, ReserveRequest};
use crate::serve::state::MESSAGE;
use tollgate_common::testing::Folder;

const CHECK: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit";
const REPORT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Report";
const RESERVE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve";
const COMMIT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Commit";

fn of_reserve(RateLimitRequest { domain, descriptors, .. }: RateLimitRequest, amount: u64) -> ReserveRequest {
    ReserveRequest { domain, descriptors, amount, ttl: None }
}

fn of_commit(
    RateLimitRequest { domain, descriptors, .. }: RateLimitRequest,
    id: &str,
    actual_amount: u64,
) -> CommitRequest {
    CommitRequest { domain, descriptors, reservation_id: id.to_owned(), actual_amount }
}

#[tokio::test]
async fn the_four_calls_are_answered_and_no_error_lets_a_request_pass() {
    let folder = Folder::new();
    let rules =
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: 100}\n";
    std::fs::write(folder.path("shop.yaml"), rules).unwrap();
    let server = serve(Protocol::Grpc, &folder.path("shop.yaml"), &[]);
    let mut client = Client::connect(&server).await;
    let ann = request("shop", &[("user", "ann")]);
    let (status, _, answers) = client.call::<ReserveResponse>(RESERVE, &of_reserve(ann.clone(), 100)).await;
    assert_eq!((status, answers[0].code()), (0, Code::Ok));
    let id = super::text_of(answers[0].reservation_id.clone());
    let (status, _, answers) = client.call::<ReserveResponse>(RESERVE, &of_reserve(ann.clone(), 1)).await;
    assert_eq!((status, answers[0].code(), answers[0].reservation_id.len()), (0, Code::OverLimit, 0));
    let (_, _, answers) = client.call::<RateLimitResponse>(CHECK, &ann).await;
    assert_eq!(answers[0].overall_code(), Code::OverLimit);
    let (_, _, answers) = client.call::<CommitResponse>(COMMIT, &of_commit(ann.clone(), &id, 40)).await;
    assert_eq!((answers[0].reservation_released, answers[0].outcome()), (true, Outcome::Committed));
    let (_, _, answers) = client.call::<RateLimitResponse>(CHECK, &ann).await;
    assert_eq!(answers[0].overall_code(), Code::Ok);
    let (_, _, answers) = client.call::<RateLimitResponse>(REPORT, &ann).await;
    assert_eq!((answers[0].overall_code(), answers[0].statuses[0].limit_remaining), (Code::Ok, 59));
    // Without a domain or a descriptor none of the calls has an answer, as `ShouldRateLimit`.
    let no_domain = request("", &[("user", "ann")]);
    let no_descriptor = RateLimitRequest { domain: "shop".to_owned(), ..RateLimitRequest::default() };
    let mut many = ann.clone();
    many.descriptors = vec![many.descriptors[0].clone(); 1_025];
    for (request, expected) in [(no_domain, 2), (no_descriptor, 2), (many, 8)] {
        let statuses = [
            client.call::<RateLimitResponse>(CHECK, &request).await.0,
            client.call::<RateLimitResponse>(REPORT, &request).await.0,
            client.call::<ReserveResponse>(RESERVE, &of_reserve(request.clone(), 1)).await.0,
            client.call::<CommitResponse>(COMMIT, &of_commit(request.clone(), &id, 1)).await.0,
        ];
        assert_eq!(statuses, [expected; 4]);
    }
    let other = of_commit(request("shop", &[("user", "bob")]), &id, 1);
    assert_eq!(client.call::<CommitResponse>(COMMIT, &other).await.0, 3);
    // A client chooses the length of its values: a question that is too long is refused.
    let long = request("shop", &[("user", &"a".repeat(MESSAGE))]);
    let (status, _, answers) = client.call::<ReserveResponse>(RESERVE, &of_reserve(long.clone(), 1)).await;
    assert_eq!((status, answers[0].code()), (0, Code::OverLimit));
    let (status, _, answers) = client.call::<RateLimitResponse>(CHECK, &long).await;
    assert_eq!((status, answers[0].overall_code()), (0, Code::OverLimit));
    assert_eq!(client.call::<RateLimitResponse>(REPORT, &long).await.0, 11);
    // The id of a reservation is no reason against its commit.
    let fits = of_commit(request("shop", &[("user", &"a".repeat(MESSAGE - 100))]), "", 1);
    let with_id = CommitRequest { reservation_id: "x".repeat(1 << 19), ..fits };
    assert_eq!(client.call::<CommitResponse>(COMMIT, &with_id).await.2[0].outcome(), Outcome::Unknown);
    let longer = request("shop", &[("user", &"a".repeat(MESSAGE + (1 << 20)))]);
    assert_eq!(client.call::<CommitResponse>(COMMIT, &of_commit(longer, "", 1)).await.0, 11);
    let path = "/kuadrant.service.ratelimit.v1.RateLimitService/Release";
    assert_eq!(client.call::<CommitResponse>(path, &ann).await.0, 12);
}

/// Values that are no UTF-8 are those of a client, so they are decided on.
#[tokio::test]
async fn values_that_are_no_text_are_reserved_and_committed() {
    use prost::Message;
    let reserve = of_reserve(request("d", &[("minute", "aaa")]), 60).encode_to_vec();
    let commit = of_commit(request("d", &[("minute", "aaa")]), "ab", 60).encode_to_vec();
    let bytes = |mut message: Vec<u8>| {
        let at = message.windows(3).position(|part| part == b"aaa").unwrap();
        message[at..at + 3].copy_from_slice(b"a\xffa");
        message
    };
    let reserve = ReserveRequest::read(&bytes(reserve)).unwrap();
    let commit = CommitRequest::read(&bytes(commit)).unwrap();
    assert_eq!((reserve.amount, &*commit.reservation_id, commit.actual_amount), (60, "ab", 60));
    assert_eq!(reserve.descriptors, commit.descriptors);
    assert!(reserve.descriptors[0].entries[0].value.contains('\u{10f7ff}'));
}

/// Tasks that reserve and commit at the same time: the limit holds at each moment, and the count is
/// the sum of the actual amounts at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reservations_at_the_same_time_never_pass_the_limit() {
    let rules = "domain: d\ndescriptors:\n- key: hour\n  rate_limit: {unit: year, requests_per_unit: 1000}\n";
    for keeps in [true, false] {
        let world = Arc::new(World::new(&[]));
        world.load(0, rules);
        let (reserved, used) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..8_u64).map(|task| {
            let (world, reserved, used) = (world.clone(), reserved.clone(), used.clone());
            tokio::spawn(async move {
                for turn in 0..400 {
                    let amount = (task + turn) % 7 + 1;
                    let Some(id) = world.reserve(&["hour"], amount).await else { continue };
                    let now = reserved.fetch_add(amount, SeqCst) + amount;
                    assert!(now <= 1_000, "{now} of 1,000");
                    if keeps {
                        continue;
                    }
                    let actual = if turn % 100 == 0 { 1 } else { 0 };
                    used.fetch_add(actual, SeqCst);
                    // Less is told before it is free: what is free then is the rest.
                    reserved.fetch_sub(amount - actual, SeqCst);
                    assert_eq!(world.commit(&["hour"], &id, actual).await, Outcome::Committed);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let left = u64::from(world.left("hour").await);
        let counted = if keeps { &reserved } else { &used };
        assert_eq!(1_000 - left, counted.load(SeqCst));
        assert!(!keeps || left < 7, "{left} are left");
    }
}

/// The entry of a reservation is a few bytes.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_open_reservations_take_little_memory() {
    let number = if std::env::var_os("FULL").is_some() { 100_000 } else { 10_000 };
    let world = World::new(&[]);
    let reservations = &world.services[0].reservations;
    for _ in 0..number {
        assert!(world.reserve(&["hour"], 0).await.is_some());
    }
    assert_eq!(reservations.open_now(), number);
    let bytes = reservations.bytes();
    println!("{bytes} bytes of {number} reservations");
    assert!(bytes <= 80 * number, "{bytes} bytes");
    world.pass(21 * SECOND).await;
    world.lapse().await;
    assert_eq!(reservations.open_now(), 0);
    assert!(reservations.bytes() < bytes / 4);
}

/// Prints the time of a reservation with its commit, and of a plain request, each in this process.
#[tokio::test]
#[ignore = "it measures"]
async fn a_reservation_beside_a_plain_request() {
    let world = World::new(&[]);
    world.load(
        0,
        "domain: d\ndescriptors:\n- key: hour\n  rate_limit: {unit: year, requests_per_unit: 4000000000}\n",
    );
    let service = &world.services[0];
    let plain = asked(&["hour"]);
    for _ in 0..5 {
        let began = std::time::Instant::now();
        for _ in 0..200_000 {
            std::hint::black_box(service.ask(&plain.clone()).await.unwrap());
        }
        let of_plain = began.elapsed();
        let began = std::time::Instant::now();
        for _ in 0..200_000 {
            std::hint::black_box(service.reserve(of_reserve(plain.clone(), 1)).await.unwrap());
        }
        let of_reserve = began.elapsed();
        println!("{of_plain:?} {of_reserve:?}: {}", of_reserve.as_secs_f64() / of_plain.as_secs_f64());
    }
}
