//! The fields of a decision for the logs of proxies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures_util::FutureExt;
use hyper::Request;

use super::moved::Run;
use super::table::{Service, yaml};
use crate::serve::checks::Check;
use crate::serve::counts::Algorithm::FixedWindow;
use crate::serve::http;
use crate::serve::json;
use crate::serve::state::{Configured, Files};

const VALUE: &str = "secret-of-the-client";

/// Asks for descriptors, each of a key and more fields. Returns the decision, the limit and the
/// digest; of an answer without a limit, two empty texts.
fn logged(service: &Service, keys: &[(&str, &str)]) -> [String; 3] {
    let descriptor = |(key, more): &(&str, &str)| {
        format!(r#"{{"entries": [{{"key": "{key}", "value": "{VALUE}"}}]{more}}}"#)
    };
    let descriptors = keys.iter().map(descriptor).collect::<Vec<_>>().join(", ");
    let text = format!(r#"{{"domain": "d", "descriptors": [{descriptors}]}}"#);
    let response = service.decide(&json::request(text.as_bytes()).unwrap()).unwrap();
    let told: serde_json::Value = serde_json::from_str(&json::response(&response)).unwrap();
    ["decision", "limit", "key"].map(|field| {
        let text = told["dynamicMetadata"][field].as_str().unwrap_or_default();
        assert!(!text.contains(VALUE), "{text}");
        text.to_owned()
    })
}

#[test]
fn the_metadata_has_the_decision_the_limit_and_a_digest_of_its_key() {
    let mut service = Service::new(
        &yaml(&[
            "unit: hour, requests_per_unit: 2",
            "unit: day, requests_per_unit: 9",
            "limits: [{unit: hour, requests_per_unit: 5}, {unit: day, requests_per_unit: 3}]",
            "limits: [10/s burst 20, 10/s sliding]",
            "unlimited: true",
        ]),
        FixedWindow,
    );
    service.options.tells_decision = true;
    let over = r#", "limit": {"requests_per_unit": 0, "unit": "HOUR"}"#;
    for (keys, wanted) in [
        (&[("a", ""), ("b", "")][..], ["ok", "d.a"]),
        (&[("b", ""), ("a", "")], ["ok", "d.a"]),
        (&[("b", ""), ("a", "")], ["over", "d.a"]),
        (&[("b", "")], ["ok", "d.b"]),
        (&[("c", "")], ["ok", "d.c.3/day"]),
        (&[("d", "")], ["ok", "d.d"]),
        (&[("x", over), ("b", "")], ["over", "d.x"]),
        (&[("x", "")], ["ok", ""]),
        (&[("e", "")], ["ok", ""]),
    ] {
        let [decision, limit, key] = logged(&service, keys);
        assert_eq!([&*decision, &*limit], wanted, "{keys:?}");
        let is_digest = key.len() == 16 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(if limit.is_empty() { key.is_empty() } else { is_digest }, "{key}");
    }
    // One key has one digest, which is no part of the key.
    let digests: Vec<String> =
        [("a", ""), ("a", ""), ("b", "")].map(|key| logged(&service, &[key])[2].clone()).into();
    assert_eq!((&digests[0], digests.iter().collect::<BTreeSet<_>>().len()), (&digests[1], 2));
    let entries = super::client::request("d", &[("a", VALUE)]).descriptors[0].entries.clone();
    let key: String =
        service.counts.key("d", &entries, &[]).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!key.contains(&digests[0]));
    service.options.is_shadow = true;
    assert_eq!(logged(&service, &[("a", "")])[..2], ["ok", "d.a"]);
    (service.options.tells_metadata, service.options.tells_decision) = (true, false);
    assert_eq!(logged(&service, &[("a", "")]), ["", "", ""]);
}

/// Returns a service with a check of these fields, in front of a rule of one request an hour.
fn checked(fields: &str) -> Run {
    let text = format!(
        "[check.edge]\ndomain = \"d\"\nfrom = [\"127.0.0.1\"]\ndescriptors = [{{ k = \"{{client}}\" }}]\n{fields}\n"
    );
    let run = Run::new(FixedWindow, 1_000);
    let mut settings = run.service.in_force().settings.clone();
    settings.checks = Check::all(&text).unwrap().into();
    let (files, version) = (Files::default(), String::new());
    run.service.set(Configured { settings, files, loaded: None, version });
    run.load(&["key: k, rate_limit: {unit: hour, requests_per_unit: 1}"]);
    run
}

#[test]
fn a_check_has_the_same_as_headers_if_its_profile_says_so() {
    for (fields, has_headers) in [("log_headers = true", true), ("log_headers = false", false), ("", false)] {
        let run = checked(fields);
        let ask = || {
            let request = Request::get("/check/edge/a").body(()).unwrap();
            let answer = http::check(&run.service, IpAddr::from([127, 0, 0, 1]), &request);
            let answer = answer.now_or_never().unwrap();
            ["decision", "limit", "key"].map(|name| {
                let value = answer.headers().get(format!("x-tollgate-{name}"));
                value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
            })
        };
        let (first, second) = (ask(), ask());
        if !has_headers {
            assert_eq!([first, second].concat().concat(), "", "{fields}");
            continue;
        }
        assert_eq!([&first[..2], &second[..2]], [["ok", "d.k"], ["over", "d.k"]]);
        assert!(first[2].len() == 16 && first[2] == second[2], "{first:?} {second:?}");
    }
}
