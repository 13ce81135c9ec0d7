//! The pages of the service that name a rule: the metrics with their labels, and `/explain`.
//!
//! The limits are of a year, so that no window ends under a test.

use std::fs;

use serde_json::json;
use tollgate_testing::wire::Connection;

use crate::client::Service;

const RULES: &str = "
domain: mesh
descriptors:
  - key: user
    descriptors:
      - {key: trust, value: high, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: token, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
";

fn service(env: &[(&str, &str)]) -> Service {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("mesh.yaml"), RULES).expect("it is written");
    let mut service = Service::start(folder.path(), &[], env).unwrap_or_else(|error| panic!("{error}"));
    service.folder = Some(folder);
    service
}

/// Asks for a descriptor such as `user=ada,trust=high`. `+` is a request that passes, `-` one that
/// is refused.
fn check(service: &Service, descriptor: &str, expected: &str) {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').expect("a key and a value");
        json!({"key": key, "value": value})
    };
    let entries: Vec<_> = descriptor.split(',').map(entry).collect();
    let request = json!({"domain": "mesh", "descriptors": [{"entries": entries}]}).to_string();
    let code = |_| service.http(false, "POST", "/json", Some(&request))["json"]["overallCode"].take();
    let told: String = expected.chars().map(code).map(|code| if code == "OK" { '+' } else { '-' }).collect();
    assert_eq!(told, expected, "{descriptor}");
}

#[test]
fn a_detailed_metric_has_the_value_of_the_request_and_the_labels_of_the_environment() {
    let service = service(&[("EXTRA_TAGS", "zone:eu-1,app.kubernetes.io/name:a\"b:c")]);
    check(&service, "token=unwritten", "++-");
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
fn the_page_explain_tells_the_way_and_the_count() {
    let service = service(&[]);
    check(&service, "user=a b,trust=high", "++");
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
    check(&service, "user=a b,trust=high", "+-");
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

#[test]
fn a_count_is_cleared_by_a_call_with_an_origin() {
    let service = service(&[]);
    let path = "/count?domain=mesh&descriptor=token=ann";
    check(&service, "token=ann", "++-");
    let mut foreign = Connection::connect(service.admin());
    let refused = foreign.ask(&format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(refused.status, 403);
    let other = service.http(true, "DELETE", &path.replace("ann", "bob"), None);
    assert_eq!(other["status"], 200, "{other}");
    check(&service, "token=ann", "-");
    let told = service.http(true, "DELETE", path, None);
    let line = told["body"].as_str().expect("text");
    assert!(line.starts_with("mesh.token: 0 hits of 2, 2 left, and "), "{told}");
    assert!(line.contains("; before: 4 hits of 2, 0 left, and "), "{told}");
    check(&service, "token=ann", "++-");
    for (query, status) in
        [("", 400), ("?domain=mesh&descriptor=x=y", 404), ("?domain=m&descriptor=x=y", 404)]
    {
        assert_eq!(
            service.http(true, "DELETE", &format!("/count{query}"), None)["status"],
            status,
            "{query}"
        );
    }
    assert_eq!(service.http(true, "GET", path, None)["status"], 405);
}
