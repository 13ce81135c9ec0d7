//! Requests to the rate limit service for callgrind to count: 20,000 times a message is read, is
//! decided on, and its answer is written.
//!
//! It is a program of its own: the compiler shares code between the limiters of a program. So it
//! would change the counts of `instructions`.
//!
//! `serve-2` has two descriptors. `serve-rules` finds the limit of one among 10,000. `serve-echo`
//! is the messages without a decision.

use std::fmt::Write;
use std::hint::black_box;

use prost::Message;

use tollgate_server::rules::load::{LoadOptions, load_all};
use tollgate_server::serve::counts::{CountOptions, LimitCounts};
use tollgate_server::serve::decide::{DecisionOptions, decide as decide_on};
use tollgate_server::serve::messages::{
    DescriptorEntry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};

const DECISIONS: u64 = 20_000;

/// Makes the counted decisions.
#[inline(never)]
fn decide(decision: impl Fn() -> bool) -> u64 {
    (0..DECISIONS).map(|_| u64::from(decision())).sum()
}

/// Returns rules, of which one half is of fixed values and the other of any.
fn rules(count: usize) -> String {
    let limit = "rate_limit: {unit: hour, requests_per_unit: 1000000000}";
    let mut text = "domain: edge\ndescriptors:\n".to_owned();
    for rule in 0..count / 2 {
        let _ = writeln!(
            text,
            "- {{key: path, value: /api/v1/items{rule}, {limit}}}\n- {{key: client{rule}, {limit}}}"
        );
    }
    text
}

fn main() {
    let kind = std::env::args().nth(1).expect("the kind of requests");
    let (descriptors, count) = match kind.as_str() {
        "serve" | "serve-echo" => (1, 2),
        "serve-2" => (2, 2),
        "serve-rules" => (1, 10_000),
        _ => panic!("no such kind: {kind}"),
    };
    // Before it is calibrated, a reading of the clock takes 100 instructions more.
    let options = CountOptions::default();
    options.clock.warm();
    let counts = LimitCounts::new(&options);
    let loaded = load_all(&[("edge.yaml".to_owned(), rules(count))], LoadOptions::default());
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    let loaded = counts.load(loaded.rules).expect("no texts");
    let descriptor = |(key, value): (&str, &str)| RateLimitDescriptor {
        entries: vec![DescriptorEntry { key: key.to_owned(), value: value.to_owned() }],
        ..RateLimitDescriptor::default()
    };
    let asked = [("client0", "192.0.2.17"), ("path", "/api/v1/items0")].into_iter().take(descriptors);
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: asked.map(descriptor).collect(),
        hits_addend: 0,
    };
    let (bytes, options) = (request.encode_to_vec(), DecisionOptions::default());
    let answer = |request: &RateLimitRequest| {
        decide_on(&loaded, &counts, &options, request, counts.now()).expect("a decision")
    };
    let first = answer(&request);
    assert!(first.statuses.iter().all(|status| status.current_limit.is_some()), "each finds its limit");
    let echoed = first.encode_to_vec();
    let read = || RateLimitRequest::decode(black_box(&bytes[..])).expect("a message");
    let done = match kind.as_str() {
        "serve-echo" => decide(|| {
            let answer = RateLimitResponse::decode(black_box(&echoed[..])).expect("a message");
            !read().descriptors.is_empty() && !answer.encode_to_vec().is_empty()
        }),
        _ => decide(|| !answer(&read()).encode_to_vec().is_empty()),
    };
    assert_eq!(done, DECISIONS, "each is answered");
}
