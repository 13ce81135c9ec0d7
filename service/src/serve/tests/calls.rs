//! The calls of gRPC: decisions, their errors and bounds, and health.

use http_body_util::BodyExt;
use prost::Message;

use super::super::front::Protocol;
use super::super::messages::{
    Code, HealthCheckRequest, HealthCheckResponse, RateLimitRequest, RateLimitResponse, ServingStatus,
};
use super::super::state::{Condition, MESSAGE};
use super::SHOP;
use super::client::{Client, SHOULD_RATE_LIMIT, Server, WATCH, answered, framed, request, serve};
use tollgate_common::testing::Folder;

const CHECK: &str = "/grpc.health.v1.Health/Check";

fn shop(given: &[(&str, &str)]) -> (Folder, Server) {
    let folder = Folder::new();
    std::fs::write(folder.path("shop.yaml"), SHOP).unwrap();
    let server = serve(Protocol::Grpc, &folder.path("shop.yaml"), given);
    (folder, server)
}

/// Asks, and returns the status with its text.
async fn status_of(client: &mut Client, request: &RateLimitRequest) -> (i32, String) {
    let (status, text, _) = client.call::<RateLimitResponse>(SHOULD_RATE_LIMIT, request).await;
    (status, text)
}

#[tokio::test]
async fn a_call_is_decided_and_counted() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    for (code, remaining) in [(Code::Ok, 1), (Code::Ok, 0), (Code::OverLimit, 0)] {
        let (status, _, answers) =
            client.call(SHOULD_RATE_LIMIT, &request("shop", &[("account", "a")])).await;
        let [RateLimitResponse { overall_code, statuses, .. }] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((status, *overall_code), (0, i32::from(code)));
        assert_eq!(statuses[0].limit_remaining, remaining);
    }
    let lines = server.source.service.counts.statistics.lines();
    assert!(lines.contains("rate_limit.shop.account.total_hits: 3\n"), "{lines}");
}

#[tokio::test]
async fn a_request_without_a_decision_has_the_status_unknown() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    let no_domain = request("", &[("account", "a")]);
    let no_descriptor = RateLimitRequest { domain: "shop".to_owned(), ..RateLimitRequest::default() };
    let text = |text: &str| (2, text.replace(' ', "%20"));
    assert_eq!(status_of(&mut client, &no_domain).await, text("rate limit domain must not be empty"));
    let told = text("rate limit descriptor list must not be empty");
    assert_eq!(status_of(&mut client, &no_descriptor).await, told);
    let missing = serve(Protocol::Grpc, "/nothing/is/here".as_ref(), &[]);
    let mut client = Client::connect(&missing).await;
    let told = text("no rate limit configuration loaded");
    assert_eq!(status_of(&mut client, &request("shop", &[("account", "a")])).await, told);
    let lines = missing.source.service.counts.statistics.lines();
    assert!(lines.contains("service_error: 1\n"), "{lines}");
}

/// The file of Envoy decides about these numbers, so one beyond is an error. A client chooses the
/// length of a message, so a longer one is refused.
#[tokio::test]
async fn a_request_over_a_bound_is_an_error_or_is_refused() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    let of_descriptors = |number| {
        let mut request = request("shop", &[("account", "a")]);
        request.descriptors = vec![request.descriptors[0].clone(); number];
        request
    };
    let of_entries = |number| request("shop", &vec![("a", "b"); number]);
    for (within, beyond) in [(of_descriptors(1_024), of_descriptors(1_025)), (of_entries(64), of_entries(65))]
    {
        assert_eq!(status_of(&mut client, &within).await, (0, String::new()));
        let (status, text) = status_of(&mut client, &beyond).await;
        assert_eq!(status, 8, "{text}");
    }
    let of_bytes = |length: usize| {
        let of_value = |length| request("shop", &[("account", &"a".repeat(length))]);
        let shorter = length - 40;
        let request = of_value(shorter + length - of_value(shorter).encoded_len());
        assert_eq!(request.encoded_len(), length);
        request
    };
    let code = async |client: &mut Client, bytes: usize| {
        let (status, _, answers) = client.call(SHOULD_RATE_LIMIT, &of_bytes(bytes)).await;
        let [RateLimitResponse { overall_code, .. }] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(status, 0);
        *overall_code
    };
    assert_eq!(code(&mut client, MESSAGE).await, i32::from(Code::Ok));
    assert_eq!(code(&mut client, MESSAGE + 1).await, i32::from(Code::OverLimit));
    // Without room for long messages, a short one is decided on.
    let room = &server.source.service.room;
    assert_eq!(room.available_permits(), 64 << 20, "each message has given its room back");
    room.forget_permits(room.available_permits());
    assert_eq!(code(&mut client, 4_000).await, i32::from(Code::Ok));
    assert_eq!(code(&mut client, 5_000).await, i32::from(Code::OverLimit));
    let lines = server.source.service.counts.statistics.lines();
    assert!(lines.contains("service_error: 4\n"), "{lines}");
    let (_folder, server) = shop(&[("SHADOW_MODE", "true")]);
    let mut client = Client::connect(&server).await;
    assert_eq!(code(&mut client, MESSAGE + 1).await, i32::from(Code::Ok));
}

/// Envoy lets a request pass that is answered by an error, so each value is decided on.
#[tokio::test]
async fn each_value_that_a_client_can_write_has_a_count_of_its_own() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    let lengths = [0, 1, 4_096, 4_097, 61_440].map(|length| b"v".repeat(length));
    let last = [&b"v".repeat(61_439)[..], b"w"].concat();
    let bytes = (1..=255).map(|byte| vec![b'v', byte, b'v']);
    let pairs = [&b"\xff\xfe"[..], b"\xfe\xff", b"\xff", b"\xef\xbf\xbd", &b"\xff".repeat(61_440)];
    for value in lengths.into_iter().chain([last]).chain(bytes).chain(pairs.map(<[u8]>::to_vec)) {
        // The value is the end of the message.
        let mut message = framed(&request("shop", &[("account", &"a".repeat(value.len()))]));
        let begin = message.len() - value.len();
        message[begin..].copy_from_slice(&value);
        let mut codes = Vec::new();
        for _ in 0..3 {
            let response = client.send(SHOULD_RATE_LIMIT, &[], message.clone()).await;
            let (status, text, answers) = answered::<RateLimitResponse>(response).await;
            assert_eq!(status, 0, "{text}");
            codes.push(answers[0].overall_code());
        }
        assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit], "{:?}", &value[..value.len().min(3)]);
    }
    // A proxy that traces passes this header on.
    let state = "a".repeat(61_440);
    let message = framed(&request("shop", &[("account", "traced")]));
    let response = client.send(SHOULD_RATE_LIMIT, &[("tracestate", &state)], message).await;
    assert_eq!(answered::<RateLimitResponse>(response).await.0, 0);
}

#[tokio::test]
async fn a_compressed_message_an_unknown_method_and_another_protocol_are_refused() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    let mut message = framed(&request("shop", &[("account", "a")]));
    message[0] = 1;
    let response = client.send(SHOULD_RATE_LIMIT, &[("grpc-encoding", "gzip")], message.clone()).await;
    assert_eq!(answered::<RateLimitResponse>(response).await.0, 12);
    let (status, text, _) = client.call::<RateLimitResponse>("/a/B", &request("shop", &[])).await;
    assert_eq!((status, text.contains("is%20unknown")), (12, true));
    let response = client.send(SHOULD_RATE_LIMIT, &[("content-type", "text/plain")], message).await;
    assert_eq!(response.status(), 415);
    // A message that is none: its first field is longer than itself.
    let response = client.send(SHOULD_RATE_LIMIT, &[], b"\0\0\0\0\x02\x0a\x09".to_vec()).await;
    assert_eq!(answered::<RateLimitResponse>(response).await.0, 13);
    let lines = server.source.service.counts.statistics.lines();
    assert!(lines.contains("service_error: 2\n"), "{lines}");
}

#[tokio::test]
async fn health_is_told_by_name_and_fails_without_a_domain() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let serving = |status: ServingStatus| vec![HealthCheckResponse { status: status.into() }];
    for name in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
        let (status, _, answers) = client.call(CHECK, &ask(name)).await;
        assert_eq!((status, answers), (0, serving(ServingStatus::Serving)), "{name}");
    }
    assert_eq!(client.call::<HealthCheckResponse>(CHECK, &ask("b")).await.0, 5);
    let empty = Folder::new();
    for (given, expected) in [
        (&[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")][..], ServingStatus::Serving),
        (&[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")], ServingStatus::NotServing),
    ] {
        let server = serve(Protocol::Grpc, &empty.path(""), given);
        let (status, _, answers) = Client::connect(&server).await.call(CHECK, &ask("")).await;
        assert_eq!((status, answers), (0, serving(expected)));
    }
}

/// A watch tells each change, and ends with the stop.
#[tokio::test]
async fn a_watch_tells_of_the_stop_and_ends() {
    let (_folder, server) = shop(&[]);
    let mut client = Client::connect(&server).await;
    let ask = framed(&HealthCheckRequest { service: "ratelimit".to_owned() });
    let mut watch = client.send(WATCH, &[], ask).await;
    let message = |status: ServingStatus| framed(&HealthCheckResponse { status: status.into() });
    let frame = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, message(ServingStatus::Serving));
    server.source.service.health.send_replace(Condition::Stopping);
    let (status, _, answers) = answered::<HealthCheckResponse>(watch).await;
    let stopped = HealthCheckResponse { status: ServingStatus::NotServing.into() };
    assert_eq!((status, answers), (0, vec![stopped]));
    let unknown = HealthCheckRequest { service: "b".to_owned() };
    let mut watch = client.send(WATCH, &[], framed(&unknown)).await;
    let frame = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, message(ServingStatus::ServiceUnknown));
}
