//! Decisions on several descriptors of a request.

use std::time::Duration;

use super::table::{Service, yaml};
use crate::serve::counts::Algorithm::FixedWindow;
use crate::serve::json;
use crate::serve::messages::{
    Code::{self, Ok as Pass, OverLimit},
    RateLimitResponse,
};
use crate::serve::status::HeaderNames;

/// Asks for a descriptor of each key, with these hits of the request.
fn ask_all(service: &Service, keys: &[&str], hits: &str) -> RateLimitResponse {
    let descriptor = |key: &&str| format!(r#"{{"entries": [{{"key": "{key}", "value": "v"}}]{hits}}}"#);
    let descriptors = keys.iter().map(descriptor).collect::<Vec<_>>().join(", ");
    let text = format!(r#"{{"domain": "d", "descriptors": [{descriptors}]}}"#);
    service.decide(&json::request(text.as_bytes()).unwrap()).unwrap()
}

/// As in the reference: a descriptor without a rule is a quota with room.
#[test]
fn a_descriptor_without_a_limit_is_a_quota_that_is_not_over() {
    let mut service = Service::new(&yaml(&["unit: day"]), FixedWindow);
    for (is_quota, keys, code) in [
        (false, &["a", "x"][..], OverLimit),
        (true, &["a"], OverLimit),
        (true, &["a", "x"], Pass),
        (true, &["x", "a"], Pass),
    ] {
        service.options.is_quota = is_quota;
        assert_eq!(ask_all(&service, keys, "").overall_code(), code, "{keys:?}");
    }
}

/// A value that a rule exempts, and an override, are no such descriptors.
#[test]
fn a_descriptor_that_no_rule_matches_is_counted_by_its_keys() {
    let text = yaml(&["unit: day, requests_per_unit: 9"])
        + "  - {key: free, value: v}\n  - {key: up, descriptors: [{key: a, rate_limit: {unit: day}}]}\n";
    let service = Service::new(&text, FixedWindow);
    let asked = ask_all(&service, &["a", "free", "up", "x", "x"], "");
    assert_eq!((asked.overall_code(), asked.statuses.len()), (Pass, 5));
    ask_all(&service, &["y"], r#", "limit": {"requests_per_unit": 5, "unit": "HOUR"}"#);
    let page = service.counts.prometheus(false);
    let mut lines: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("tollgate_serve_unmatched_total")).collect();
    lines.sort_unstable();
    assert_eq!(lines, [r#"{domain="d",keys="up"} 1"#, r#"{domain="d",keys="x"} 2"#]);
}

/// A day is used up, and its retries come in an hour that has room.
#[test]
fn the_wait_that_is_told_is_that_of_the_limit_that_refuses_for_longest() {
    let windows = ["unit: hour, requests_per_unit: 20", "unit: day, requests_per_unit: 24"];
    let texts = ["limit: 20/h fixed utc", "limit: 24/d fixed utc"];
    for (limits, stops) in [(windows, false), (windows, true), (texts, false), (texts, true)] {
        let mut service = Service::new(&yaml(&limits), FixedWindow);
        service.options.stops_when_over = stops;
        service.options.headers = Some(HeaderNames::default());
        let passes = |asked: usize| {
            let is_ok = |_: &usize| ask_all(&service, &["a", "b"], "").overall_code() == Pass;
            (0..asked).filter(is_ok).count()
        };
        // Unless counting stops at a refusal, those of the hour use up the day. Those of the day
        // use up the next hour.
        assert_eq!(passes(30), 20, "{limits:?} {stops}");
        service.clock.advance(Duration::from_secs(3_600));
        assert_eq!(passes(54), if stops { 4 } else { 0 }, "{limits:?} {stops}");
        let told = ask_all(&service, &["b", "a"], "");
        assert_eq!(told.statuses[1].limit_remaining, if stops { 16 } else { 0 }, "{limits:?} {stops}");
        assert_eq!((told.overall_code(), reset(&told)), (OverLimit, "39600"), "{limits:?} {stops}");
        service.clock.advance(Duration::from_secs(3_600));
        let told = ask_all(&service, &["a", "b"], "");
        let codes: Vec<Code> = told.statuses.iter().map(|status| status.code()).collect();
        assert_eq!((&*codes, reset(&told)), (&[Pass, OverLimit][..], "36000"), "{limits:?} {stops}");
    }
}

/// Returns the last header.
fn reset(response: &RateLimitResponse) -> &str {
    &response.response_headers_to_add[2].value
}

/// A user and an organisation with the pattern of token quotas: each charge reaches both.
#[test]
fn a_charge_reaches_each_limit_of_a_request() {
    for (wide, narrow) in [
        ("unit: minute, requests_per_unit: 3000", "unit: minute, requests_per_unit: 100"),
        ("limit: 3000/m burst 3000, charge: after", "limit: 100/m burst 100, charge: after"),
    ] {
        for keys in [["a", "b"], ["b", "a"]] {
            let service = Service::new(&yaml(&[wide, narrow]), FixedWindow);
            let look = || ask_all(&service, &keys, r#", "hitsAddend": 0"#);
            let charge = || drop(ask_all(&service, &keys, r#", "hitsAddend": 120"#));
            assert_eq!(look().overall_code(), Pass);
            charge();
            let looked = look();
            assert_eq!(looked.overall_code(), OverLimit, "{wide} {keys:?}");
            // A request that had passed before is charged when one of both is in debt.
            charge();
            assert_eq!(service.ask("a", r#", "hitsAddend": 0"#).1, 2_760, "{wide} {keys:?}");
        }
    }
}

/// As in the reference: they are within the limit, though a refusal by another limit keeps them
/// from being added.
#[test]
fn hits_that_pass_beside_a_refusal_are_told_as_within_the_limit() {
    let limits = ["unit: day", "unit: day, requests_per_unit: 10"];
    let mut service = Service::new(&yaml(&limits), FixedWindow);
    service.options.stops_when_over = true;
    assert_eq!(ask_all(&service, &["a", "b"], r#", "hitsAddend": 3"#).statuses[1].limit_remaining, 10);
    let lines = service.counts.statistics.lines();
    for line in ["d.a.over_limit: 3", "d.b.total_hits: 3", "d.b.within_limit: 3", "d.b.near_limit: 0"] {
        assert!(lines.contains(&format!("rate_limit.{line}\n")), "{line} in {lines}");
    }
}
