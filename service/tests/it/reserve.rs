//! Tokens that are reserved and committed, over gRPC: one process, and two on a store.

use std::fs;

use serde_json::{Value, json};

use crate::client::Service;
use crate::protobuf;

const RULES: &str = "
domain: models
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 100}
";
const CALLS: &str = "/kuadrant.service.ratelimit.v1.RateLimitService";

fn services(number: usize) -> Vec<Service> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("rules")).expect("it is made");
    fs::write(folder.path().join("rules/models.yaml"), RULES).expect("it is written");
    let store = format!("sqlite:{}", folder.path().join("counts").display());
    let of_store = ["--store", &store, "--store-deadline", "10s"];
    let options = if number > 1 { &of_store[..] } else { &[] };
    let start = |_| Service::start(&folder.path().join("rules"), options, &[]);
    let mut all: Vec<_> = (0..number).map(start).map(|started| started.expect("it starts")).collect();
    all[0].folder = Some(folder);
    all
}

fn asked(amount: Option<u64>) -> Value {
    let mut request =
        json!({"domain": "models", "descriptors": [{"entries": [{"key": "user", "value": "ada"}]}]});
    // The amount of a reservation has the number of this field.
    if let Some(amount) = amount {
        request["hitsAddend"] = amount.into();
    }
    request
}

/// Returns the code and the id.
fn reserve(service: &Service, amount: u64) -> (&'static str, String) {
    let answer = service.call(&format!("{CALLS}/Reserve"), protobuf::request(&asked(Some(amount))));
    protobuf::reserved(&answer.expect("an answer"))
}

/// Returns whether the reservation was released, and the outcome.
fn commit(service: &Service, id: &str, actual: u64) -> (bool, u64) {
    let message = protobuf::commit(&asked(None), id, actual);
    protobuf::committed(&service.call(&format!("{CALLS}/Commit"), message).expect("an answer"))
}

fn left(service: &Service) -> u64 {
    let mut look = asked(None);
    look["descriptors"][0]["hitsAddend"] = 0.into();
    service.should_rate_limit(&look)["statuses"][0]["remaining"].as_u64().expect("a status")
}

#[test]
fn tokens_are_reserved_and_committed_by_any_replica() {
    for number in [1, 2] {
        if number > 1 && !cfg!(feature = "sqlite") {
            continue;
        }
        let services = services(number);
        let (first, last) = (&services[0], &services[number - 1]);
        let (code, id) = reserve(first, 60);
        assert_eq!((code, left(last)), ("OK", 40));
        assert_eq!((reserve(last, 50), left(first)), (("OVER_LIMIT", String::new()), 40));
        assert_eq!((commit(last, &id, 20), left(first)), ((true, 1), 80));
        for service in &services {
            assert_eq!((commit(service, &id, 20), left(first)), ((false, 3), 80));
        }
        let (code, id) = reserve(last, 80);
        assert_eq!((code, commit(first, &id, 90), left(last)), ("OK", (true, 1), 0));
        let page = first.http(true, "GET", "/metrics", None);
        let page = page["body"].as_str().expect("text");
        assert!(page.contains("tollgate_serve_commits_total{outcome=\"committed\"} "), "{page}");
    }
}
