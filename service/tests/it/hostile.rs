//! Requests that are made to hurt: streams that are reset, floods of keys, and values without end.

use std::fs;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::client::{Caller, Service};
use tollgate_common::testing::Frames;
use tollgate_common::testing::frames::{ACK, DATA, PING, RESET, fields, frame, head};
use tollgate_testing::size;

fn service(options: &[&str]) -> (tempfile::TempDir, Service) {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = "rate_limit: {unit: year, requests_per_unit: 1000000}";
    let rules =
        format!("domain: d\ndescriptors:\n- {{key: fixed, value: v, {limit}}}\n- {{key: any, {limit}}}\n");
    fs::write(folder.path().join("a.yaml"), rules).expect("written");
    let service = Service::start(folder.path(), options, &[]).unwrap_or_else(|error| panic!("{error}"));
    (folder, service)
}

fn request<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> Value {
    let descriptors: Vec<_> =
        entries.map(|(key, value)| json!({"entries": [{"key": key, "value": value}]})).collect();
    json!({"domain": "d", "descriptors": descriptors})
}

fn fixed() -> Value {
    request([("fixed", "v".to_owned())].into_iter())
}

/// The connection goes on: with that of an Envoy the calls of all its clients would end.
#[test]
fn streams_that_are_opened_and_reset_take_no_memory() {
    let (_folder, service) = service(&[]);
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let fields = fields("POST", path, &[("content-type", "application/grpc"), ("te", "trailers")]);
    let burst = |resets: u32| -> Vec<u8> {
        let stream =
            |number| [head(number, 0, &fields), frame(RESET, 0, number, &8_u32.to_be_bytes())].concat();
        (0..resets).flat_map(|number| stream(2 * number + 1)).chain(frame(PING, 0, 0, &[0; 8])).collect()
    };
    let mut memory = 0.0;
    for turn in 0..size(60, 2_000) {
        let mut client = Frames::connect(service.grpc(), &[]);
        client.try_write(&burst(if turn % 2 == 0 { 15 } else { 850 })).expect("it is read");
        let is_answered = |(kind, flags, _): &(u8, u8, _)| (*kind, *flags) == (PING, ACK);
        assert!(std::iter::from_fn(|| client.next()).any(|next| is_answered(&next)), "{turn}");
        if turn == 20 {
            memory = service.resident();
        }
    }
    let grown = service.resident() - memory;
    assert!(grown < 8.0, "{grown} MB");
    assert_eq!(service.should_rate_limit(&fixed())["statuses"][0]["remaining"], 999_999);
}

/// A message that is too long is refused before its end, and the rest of it still comes.
#[test]
fn messages_that_are_refused_unread_end_no_connection() {
    let (_folder, service) = service(&[]);
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let fields = fields("POST", path, &[("content-type", "application/grpc"), ("te", "trailers")]);
    let mut client = Frames::connect(service.grpc(), &[]);
    let mut write = |each: &dyn Fn(u32) -> Vec<u8>, calls: std::ops::Range<u32>| {
        let frames = calls.flat_map(|call| each(2 * call + 1));
        let ping = frame(PING, 0, 0, &[0; 8]);
        client.try_write(&frames.chain(ping).collect::<Vec<u8>>()).expect("it is read");
        let is_answered = |(kind, flags, _): &(u8, u8, _)| (*kind, *flags) == (PING, ACK);
        assert!(std::iter::from_fn(|| client.next()).any(|next| is_answered(&next)), "the connection ends");
    };
    // The beginning of a message of 5 MiB.
    let begin = |call| [head(call, 0, &fields), frame(DATA, 0, call, &[0, 0, 0x50, 0, 0])].concat();
    (0..22).for_each(|turn| write(&begin, 100 * turn..100 * (turn + 1)));
    write(&|call| frame(DATA, 0, call, b"more"), 0..2_200);
    write(&|_| Vec::new(), 0..1);
}

/// The first question of an operator is why a request has no limit.
#[test]
fn the_log_tells_descriptors_and_decisions_and_no_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("a.yaml"),
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]\n",
    )
    .expect("written");
    let started = Service::start(folder.path(), &["--lame-duck", "0s"], &[("LOG_LEVEL", "debug")]);
    let mut service = started.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        service.should_rate_limit(&request([("k", "v".to_owned()), ("x", "\u{1}".to_owned())].into_iter()));
        service.should_rate_limit(&json!({"domain": "e", "descriptors": [{"entries": [{"key": "k"}]}]}));
    }
    service.signal("-TERM");
    let lines = service.line_with("no line has this text").expect_err("it ends");
    for (part, times) in [
        ("DEBUG d: descriptor (k=v): Ok, 0 left of 1 each year", 1),
        ("DEBUG d: descriptor (k=v): OverLimit, 0 left of 1 each year", 1),
        ("DEBUG d: descriptor (x=\\u{1}): Ok, no limit", 2),
        (r#"INFO no rule of the domain "d" matches a descriptor of the keys "x""#, 1),
        (r#"WARN no configuration has the domain "e""#, 1),
        ("frame", 0),
        ("h2", 0),
    ] {
        assert_eq!(lines.matches(part).count(), times, "{part}: {lines}");
    }
    service.kill();
}

#[test]
fn a_flood_of_keys_is_bounded_and_reaches_no_limit_of_fixed_values() {
    let (_folder, service) = service(&["--max-keys", "65536"]);
    let calls = size(400, 40_000);
    let mut memory = 0.0;
    Runtime::new().expect("threads").block_on(async {
        let mut caller = Caller::connect(service.grpc()).await;
        for call in 0..calls {
            let flood = (0..250).map(|key| ("any", (call * 250 + key).to_string()));
            let answer = caller.should_rate_limit(&request(flood)).await;
            assert_eq!(answer["statuses"].as_array().map(Vec::len), Some(250), "{answer}");
            if call == calls * 3 / 4 {
                memory = service.resident();
            }
            if call % 100 == 0 {
                let answer = caller.should_rate_limit(&fixed()).await;
                assert_eq!(answer["statuses"][0]["remaining"], 1_000_000 - call / 100 - 1, "{answer}");
            }
        }
    });
    let grown = service.resident() - memory;
    assert!(grown < 2.0, "{grown} MB");
    let page = service.http(true, "GET", "/metrics", None);
    assert!(
        page["body"].as_str().expect("text").contains("tollgate_serve_keys{unit=\"year\"} 65536\n"),
        "{page}"
    );
}

#[test]
fn a_value_of_1_mib_and_hits_beyond_all_numbers_are_told() {
    let (_folder, service) = service(&[]);
    let of_mib = |mib: usize| request([("any", "v".repeat(mib << 20))].into_iter());
    let post = |body: &Value| service.http(false, "POST", "/json", Some(&body.to_string()))["status"].clone();
    for (mib, code, status) in [(1, "OK", 200), (5, "OVER_LIMIT", 429)] {
        let long = of_mib(mib);
        assert_eq!((&service.should_rate_limit(&long)["code"], post(&long)), (&json!(code), json!(status)));
    }
    let mut asked = fixed();
    // 2^64, and one less.
    asked["descriptors"][0]["hitsAddend"] = json!("18446744073709551616");
    assert_eq!(post(&asked), 400);
    asked["descriptors"][0]["hitsAddend"] = json!("18446744073709551615");
    assert_eq!(service.should_rate_limit(&fixed())["code"], "OK");
    assert_eq!(service.should_rate_limit(&asked)["code"], "OVER_LIMIT");
    assert_eq!(service.should_rate_limit(&fixed())["code"], "OVER_LIMIT");
    // They are given back, and the count is 0.
    asked["descriptors"][0]["isNegativeHits"] = json!(true);
    assert_eq!(service.should_rate_limit(&asked)["statuses"][0]["remaining"], 1_000_000);
}
