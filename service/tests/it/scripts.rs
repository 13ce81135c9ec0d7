//! The checks of the scripts of envoyproxy/ratelimit, as rows of requests against the service.
//!
//! The limits are of a year, so that no window ends under a test. A new window is in the tests of
//! a mock clock.

use std::fs;

use serde_json::{Value, json};

use crate::client::Service;

const RULES: &str = "
domain: mesh
descriptors:
  - key: user
    descriptors:
      - {key: trust, value: high, rate_limit: {unit: year, requests_per_unit: 3}}
      - {key: trust, value: low, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 3}}
      - {key: role, value: blocked, rate_limit: {name: blocked, unit: year}}
      - {key: role, value: guest, rate_limit: {name: guest, unit: year, requests_per_unit: 1}}
  - key: from
    value: proxy
    descriptors:
      - {key: to, value: rescue, rate_limit: {unit: year, requests_per_unit: 2, replaces: [{name: blocked}]}}
      - {key: to, value: guests, rate_limit: {unit: year, requests_per_unit: 2, replaces: [{name: guest}]}}
      - {key: to, value: plain, rate_limit: {name: plain, unit: year, requests_per_unit: 2}}
  - key: category
    value: account
    rate_limit: {unit: year, requests_per_unit: 4, replaces: [{name: guest}, {name: plain}]}
  - {key: token, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
";

const QUOTAS: &str = "
domain: quotas
descriptors:
  - {key: service, value: one, quota_mode: true, metadata: {use: one}, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: service, value: two, quota_mode: true, metadata: {use: two}, rate_limit: {unit: year, requests_per_unit: 2}}
";

fn service(env: &[(&str, &str)]) -> Service {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("mesh.yaml", RULES), ("quotas.yaml", QUOTAS)] {
        fs::write(folder.path().join(name), text).expect("it is written");
    }
    let mut service = Service::start(folder.path(), &[], env).unwrap_or_else(|error| panic!("{error}"));
    service.folder = Some(folder);
    service
}

/// Asks for the descriptors of a text such as `user=ada,trust=high; from=proxy,to=plain`.
fn ask(service: &Service, domain: &str, descriptors: &str, hits: Option<u64>) -> Value {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').expect("a key and a value");
        json!({"key": key, "value": value})
    };
    let descriptor = |text: &str| {
        let mut descriptor = json!({"entries": text.split(',').map(entry).collect::<Vec<_>>()});
        if let Some(hits) = hits {
            descriptor["hitsAddend"] = hits.into();
        }
        descriptor
    };
    let descriptors: Vec<_> = descriptors.split("; ").map(descriptor).collect();
    let request = json!({"domain": domain, "descriptors": descriptors}).to_string();
    service.http(false, "POST", "/json", Some(&request))["json"].take()
}

/// Asks row by row: `+` is a request that passes, and `-` one that is refused.
fn check(service: &Service, domain: &str, rows: &[(&str, &str)]) {
    for (descriptors, expected) in rows {
        let code = |_| ask(service, domain, descriptors, None)["overallCode"].take();
        let told: String =
            expected.chars().map(code).map(|code| if code == "OK" { '+' } else { '-' }).collect();
        assert_eq!(told, *expected, "{descriptors}");
    }
}

#[test]
fn two_headers_have_a_limit_for_each_user_and_a_shadow_refuses_none() {
    let service = service(&[]);
    check(
        &service,
        "mesh",
        &[
            ("user=ada,trust=high", "+++--"),
            ("user=bob,trust=high", "+++-"),
            ("user=ada,trust=low", "+++++"),
            ("user=ada", "++++"),
        ],
    );
    let told = ask(&service, "mesh", "user=ada,trust=low", None);
    assert_eq!(
        (&told["statuses"][0]["code"], &told["statuses"][0]["limitRemaining"]),
        (&"OK".into(), &Value::Null)
    );
    let counters = service.counters();
    for (name, count) in [("total_hits", 6), ("over_limit", 3), ("shadow_mode", 3), ("within_limit", 3)] {
        assert_eq!(counters[format!("rate_limit.mesh.user.trust_low.{name}")], count, "{name}");
    }
}

#[test]
fn four_and_five_headers_replace_limits_of_a_name_and_leave_their_counts() {
    let all = "user=ada,role=guest; from=proxy,to=plain; category=account";
    check(
        &service(&[]),
        "mesh",
        &[
            ("user=ada,role=blocked", "-"),
            ("user=ada,role=blocked; from=proxy,to=elsewhere", "-"),
            ("user=ada,role=blocked; from=proxy,to=rescue", "++-"),
            // The replaced limit has not counted those before.
            ("user=ada,role=guest; from=proxy,to=guests", "++-"),
            ("user=ada,role=guest; from=proxy,to=others", "+-"),
            ("user=ada,role=guest; from=proxy,to=guests", "-"),
            (all, "++++-"),
            ("user=eve,role=guest", "+-"),
            ("user=eve,role=none; from=proxy,to=plain", "++-"),
            (all, "-"),
        ],
    );
}

#[test]
fn a_detailed_metric_has_the_value_of_the_request_and_the_labels_of_the_environment() {
    let service = service(&[("EXTRA_TAGS", "zone:eu-1,app.kubernetes.io/name:a\"b:c")]);
    check(&service, "mesh", &[("token=unwritten", "++-")]);
    let page = service.http(true, "GET", "/metrics", None);
    let labels = r#"{app_kubernetes_io_name="a\"b:c",zone="eu-1""#;
    let line = format!(
        r#"ratelimit_service_rate_limit_over_limit{labels},domain="mesh",key1="token_unwritten"}} 1"#
    );
    let told = page["body"].as_str().expect("text");
    assert!(told.lines().any(|each| each == line), "{line} in\n{told}");
    for line in told.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.contains(labels), "{line}");
    }
}

#[test]
fn quotas_refuse_once_all_are_over_and_a_look_is_charged_later() {
    let both = "service=one; service=two";
    check(&service(&[]), "quotas", &[(both, "++-")]);
    let service = service(&[("RESPONSE_DYNAMIC_METADATA", "true")]);
    // As Envoy does: a look at both, and the charge of the one that the metadata names.
    let mut used = Vec::new();
    for _ in 0..5 {
        let look = ask(&service, "quotas", both, Some(0));
        assert_eq!(look["overallCode"], "OK", "{look}");
        let name = look["dynamicMetadata"]["metadata"]["use"].as_str().expect("a quota that is left");
        ask(&service, "quotas", &format!("service={name}"), Some(1));
        used.push(name.to_owned());
    }
    assert_eq!(used, ["one", "one", "two", "two", "two"]);
    assert_eq!(ask(&service, "quotas", both, Some(0))["overallCode"], "OVER_LIMIT");
}

#[test]
fn the_page_explain_tells_the_way_and_the_count() {
    let service = service(&[]);
    check(&service, "mesh", &[("user=a b,trust=high", "++")]);
    let page = |query: &str| service.http(true, "GET", &format!("/explain{query}"), None);
    let told = page("?domain=mesh&descriptor=user=a+b,trust%3Dhigh&descriptor=user=x");
    let told = told["body"].as_str().expect("text");
    for part in [
        "descriptor 1: (user=a b),(trust=high)\n",
        "mesh.yaml:6\n     counted by (user=a b),(trust=high), with the statistics mesh.user.trust_high\n     \
         2 hits of 3, 1 left, and ",
        " s to the reset\ndescriptor 2: (user=x)\n",
        "-> no limit.",
    ] {
        assert!(told.contains(part), "{part:?} in\n{told}");
    }
    check(&service, "mesh", &[("user=a b,trust=high", "+-")]);
    for query in [
        "",
        "?domain=mesh",
        "?domain=mesh&descriptor=x",
        &format!("?domain=mesh&descriptor={}a=b", "a=b,".repeat(64)),
    ] {
        assert_eq!(page(query)["status"], 400, "{query}");
    }
    assert_eq!(service.http(true, "POST", "/explain", None)["status"], 405);
}
