//! Decisions as tables, for the parts that neither the cases nor the walk have.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate::{Clock, MockClock, RateLimiter};

use crate::rules::load::{LoadOptions, load};
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::Unit;
use crate::serve::counts::{Algorithm, CountOptions, LimitCounts};
use crate::serve::decide::{DecisionOptions, Problem, decide};
use crate::serve::json;
use crate::serve::limiters::{CountKey, Hits, Windows};
use crate::serve::loaded::LoadedRules;
use crate::serve::messages::{Code, RateLimitRequest, RateLimitResponse};

use Algorithm::{FixedWindow, TokenBucket};
use Code::{Ok as Pass, OverLimit};

/// A service on a mock clock, which stands at a Monday, noon UTC.
pub(super) struct Service {
    pub(super) counts: LimitCounts,
    rules: LoadedRules,
    pub(super) options: DecisionOptions,
    pub(super) clock: MockClock,
}

/// 2026-09-21 12:00 UTC.
const MONDAY_NOON: u64 = 1_789_992_000;

impl Service {
    pub(super) fn new(yaml: &str, algorithm: Algorithm) -> Service {
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(MONDAY_NOON));
        let counts = LimitCounts::new(&CountOptions { max_keys: 1_000, clock, algorithm });
        let rules =
            counts.load(load(&[("a.yaml".to_owned(), yaml.to_owned())], LoadOptions::default()).unwrap());
        Service { rules: rules.unwrap(), counts, options: DecisionOptions::default(), clock: mock }
    }

    pub(super) fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Problem> {
        decide(&self.rules, &self.counts, &self.options, request, self.counts.now())
    }

    /// Returns the code, the hits left and the reset of a descriptor of one entry.
    pub(super) fn ask(&self, key: &str, descriptor: &str) -> (Code, u32, i64) {
        let status = &self.answer(key, descriptor).statuses[0];
        (status.code(), status.limit_remaining, status.duration_until_reset.map_or(0, |reset| reset.seconds))
    }

    pub(super) fn answer(&self, key: &str, descriptor: &str) -> RateLimitResponse {
        let text = format!(
            r#"{{"domain": "d", "descriptors": [{{"entries": [{{"key": "{key}", "value": "v"}}]{descriptor}}}]}}"#
        );
        self.decide(&json::request(text.as_bytes()).unwrap()).unwrap()
    }
}

/// Returns a file of limits, each with a key that is a letter of the alphabet.
pub(super) fn yaml(limits: &[&str]) -> String {
    let rule = |(key, limit): (char, &&str)| format!("  - {{key: {key}, rate_limit: {{{limit}}}}}\n");
    "domain: d\ndescriptors:\n".to_owned() + &('a'..).zip(limits).map(rule).collect::<String>()
}

#[test]
fn each_unit_tells_the_time_to_its_end_and_begins_anew_there() {
    for (unit, left) in [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 43_200),
        ("week", 561_600),
        ("month", 2_592_000 - MONDAY_NOON as i64 % 2_592_000),
        ("year", 31_536_000 - MONDAY_NOON as i64 % 31_536_000),
    ] {
        let service = Service::new(&yaml(&[&format!("unit: {unit}, requests_per_unit: 5")]), FixedWindow);
        let look = r#", "hits_addend": 0"#;
        assert_eq!(service.ask("a", look), (Pass, 5, left), "a {unit} without hits");
        assert_eq!(service.ask("a", ""), (Pass, 4, left), "{unit}");
        service.clock.advance(Duration::from_secs(left as u64) - Duration::from_nanos(1));
        assert_eq!(service.ask("a", look), (Pass, 4, 1), "the last moment of a {unit}");
        service.clock.advance(Duration::from_nanos(1));
        assert_eq!(service.ask("a", look).1, 5, "the next {unit}");
    }
}

/// An override counts the entries as they are: one hit each is one of three.
#[test]
fn no_two_lists_of_entries_share_a_count() {
    let service = Service::new(&yaml(&["unit: day"]), FixedWindow);
    for entries in [
        &[("a", "bc")][..],
        &[("ab", "c")],
        &[("abc", "")],
        &[("", "abc")],
        &[("a", "b"), ("c", "")],
        &[("a", ""), ("bc", "")],
        &[("a", ""), ("b", ""), ("c", "")],
        &[("c", ""), ("b", ""), ("a", "")],
    ] {
        let entry = |&(key, value): &(&str, &str)| format!(r#"{{"key": "{key}", "value": "{value}"}}"#);
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let limit = r#"{"requests_per_unit": 3, "unit": "DAY"}"#;
        let descriptor = format!(r#"{{"entries": [{}], "limit": {limit}}}"#, entries.join(", "));
        let request = format!(r#"{{"domain": "d", "descriptors": [{descriptor}]}}"#);
        let response = service.decide(&json::request(request.as_bytes()).unwrap()).unwrap();
        assert_eq!(response.statuses[0].limit_remaining, 2, "{request}");
    }
}

/// The pattern of a shared threshold stands for an entry in the key of the count.
#[test]
fn no_entry_reaches_the_count_of_a_pattern() {
    let yaml = "domain: d\ndescriptors:\n  - key: a\n    value: b*\n    share_threshold: true\n    rate_limit: {unit: day, requests_per_unit: 9}\n";
    let service = Service::new(yaml, FixedWindow);
    let left = |key: &str, value: &str, limit: &str| {
        let entry = format!(r#"{{"key": "{key}", "value": "{value}"}}"#);
        let request = format!(r#"{{"domain": "d", "descriptors": [{{"entries": [{entry}]{limit}}}]}}"#);
        let response = service.decide(&json::request(request.as_bytes()).unwrap()).unwrap();
        response.statuses[0].limit_remaining
    };
    assert_eq!([left("a", "b1", ""), left("a", "b2", "")], [8, 7]);
    let shared = &service.rules.rules.limits().next().unwrap().shared[0];
    let Some(SharedEntry::Pattern(pattern)) = shared else { panic!("{shared:?}") };
    let pattern = pattern.replace('\0', "\\u0000");
    assert_eq!(left("", &pattern, r#", "limit": {"requests_per_unit": 9, "unit": "DAY"}"#), 8);
}

/// A saved state with keys that are numbers of 128 bits is restored.
#[test]
fn a_key_is_saved_as_the_bytes_of_a_number() {
    let (clock, _mock) = Clock::mock();
    let key: CountKey = std::array::from_fn(|index| index as u8);
    let windows = Windows::of_unit(Unit::Hour, 1_000, &clock).unwrap();
    let numbers = RateLimiter::<u128, _>::builder(windows.keys.rule()).clock(clock).build();
    numbers.try_acquire_n(&u128::from_le_bytes(key), 3).unwrap();
    windows.keys.restore(&numbers.save()).unwrap();
    assert_eq!(windows.look(key, 2), Hits { before: 3, after: 5 });
}

/// A count that goes back with the clock would mint hits.
#[test]
fn a_count_goes_on_when_the_clock_is_set_back_over_an_edge() {
    let service = Service::new(&yaml(&["unit: minute, requests_per_unit: 5"]), FixedWindow);
    assert_eq!(service.ask("a", r#", "hits_addend": 4"#), (Pass, 1, 60));
    service.clock.rewind(Duration::from_secs(1));
    assert_eq!(service.ask("a", ""), (Pass, 0, 1));
    assert_eq!(service.ask("a", ""), (OverLimit, 0, 1));
}

#[test]
fn a_limit_that_is_a_text_is_the_limiter_of_the_library() {
    let service = Service::new(
        &yaml(&["limit: 2/m burst 3", "limit: 5/90m fixed", "limit: 7/10s sliding"]),
        FixedWindow,
    );
    for (hits, wait, expected) in [
        (r#", "hits_addend": 2"#, 0, (Pass, 1, 60)),
        // A refusal takes nothing.
        (r#", "hits_addend": 2"#, 0, (OverLimit, 0, 30)),
        ("", 0, (Pass, 0, 90)),
        (r#", "hits_addend": 0"#, 0, (OverLimit, 0, 30)),
        (r#", "hits_addend": 0"#, 30, (Pass, 1, 60)),
        (r#", "hits_addend": 4"#, 0, (OverLimit, 0, 60)),
        (r#", "hits_addend": 9, "is_negative_hits": true"#, 0, (Pass, 3, 1)),
    ] {
        service.clock.advance(Duration::from_secs(wait));
        assert_eq!(service.ask("a", hits), expected, "{hits}");
    }
    for (key, told) in [("a", (2, 2)), ("b", (5, 3)), ("c", (7, 1))] {
        let text = format!(r#"{{"domain": "d", "descriptors": [{{"entries": [{{"key": "{key}"}}]}}]}}"#);
        let response = service.decide(&json::request(text.as_bytes()).unwrap()).unwrap();
        let limit = response.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), told, "{key}");
    }
}

/// The pattern of token quotas: a request looks, and its cost comes when the response ends.
#[test]
fn a_charge_after_the_fact_is_owed() {
    let service = Service::new(&yaml(&["limit: 60/m burst 100, charge: after"]), FixedWindow);
    let look = r#", "hits_addend": 0"#;
    for (hits, wait, expected) in [
        (look, 0, (Pass, 100, 1)),
        (r#", "hits_addend": 60"#, 0, (Pass, 40, 60)),
        // More than are left: 20 are owed, and the next token is the 21st from here.
        (r#", "hits_addend": 60"#, 0, (OverLimit, 0, 21)),
        (look, 20, (OverLimit, 0, 1)),
        (look, 1, (Pass, 1, 99)),
    ] {
        service.clock.advance(Duration::from_secs(wait));
        assert_eq!(service.ask("a", hits), expected, "{hits}");
    }
}

/// A client that waits a second, or for all tokens, would ask for ever in vain.
#[test]
fn hits_that_are_never_granted_wait_for_a_period_at_least() {
    let service = Service::new(&yaml(&["limit: 60/m burst 100", "limit: 5/h fixed"]), FixedWindow);
    for (key, hits, expected) in [
        ("a", 101, (OverLimit, 0, 60)),
        ("a", 100, (Pass, 0, 100)),
        ("a", 101, (OverLimit, 0, 100)),
        ("a", 100, (OverLimit, 0, 100)),
        ("b", 6, (OverLimit, 0, 3_600)),
    ] {
        assert_eq!(service.ask(key, &format!(r#", "hits_addend": {hits}"#)), expected, "{key} {hits}");
    }
}

#[test]
fn the_algorithm_of_buckets_reads_a_unit_as_a_text() {
    let limits =
        ["unit: minute, requests_per_unit: 6", "unit: hour", "unit: second, requests_per_unit: 4294967295"];
    let service = Service::new(&yaml(&limits), TokenBucket);
    assert_eq!(service.ask("a", r#", "hits_addend": 6"#), (Pass, 0, 60));
    assert_eq!(service.ask("a", r#", "hits_addend": 0"#), (Pass, 0, 60), "a look at the limit");
    assert_eq!(service.ask("a", ""), (OverLimit, 0, 10));
    service.clock.advance(Duration::from_secs(10));
    assert_eq!(service.ask("a", ""), (Pass, 0, 60));
    assert_eq!(service.ask("b", "").0, OverLimit, "a limit of 0 refuses");
    assert_eq!(service.ask("c", r#", "hits_addend": "4294967294""#), (Pass, 1, 1));
    // An override has a bucket of its own rule.
    let limit = r#", "limit": {"requests_per_unit": 2, "unit": "MINUTE"}"#;
    assert_eq!(service.ask("a", limit), (Pass, 1, 30));
}

/// Each text has a limiter of some 44 KB.
#[test]
fn overrides_beyond_the_limiters_that_may_be_are_counted_in_windows() {
    let service = Service::new(&yaml(&["unit: hour, requests_per_unit: 1"]), TokenBucket);
    for requests in 1..400 {
        let limit = format!(r#", "limit": {{"requests_per_unit": {requests}, "unit": "DAY"}}"#);
        let (code, left, _) = service.ask("x", &limit);
        assert_eq!(code, Pass, "{requests}");
        // The first 255 have a bucket each, and the others share the window of the entries.
        assert_eq!(left, if requests < 256 { requests - 1 } else { 255 }, "{requests}");
    }
}

#[test]
fn an_override_of_no_unit_is_none() {
    let service = Service::new(&yaml(&["unit: day, requests_per_unit: 5"]), FixedWindow);
    let of_unit = |unit: u32| format!(r#", "limit": {{"requestsPerUnit": 1, "unit": {unit}}}"#);
    for (unit, left) in [(0, 4), (99, 3), (2_147_483_647, 2)] {
        assert_eq!(service.ask("a", &of_unit(unit)).1, left, "unit {unit}");
    }
    assert_eq!(service.ask("a", &of_unit(4)), (OverLimit, 0, 43_200), "a day");
}

/// The keys of the flood share beyond the bound, and a fixed value always has its slot.
#[test]
fn no_flood_of_values_reaches_a_limit_of_fixed_values() {
    for (limit, algorithm) in [
        ("unit: year, requests_per_unit: 3", FixedWindow),
        ("unit: year, requests_per_unit: 3", TokenBucket),
        ("limit: 3/365d fixed utc", FixedWindow),
        ("limit: 3/365d burst 3", FixedWindow),
    ] {
        let flooded = format!(
            "domain: d\ndescriptors:\n  - {{key: a, value: v, rate_limit: {{{limit}}}}}\n  \
             - {{key: ip, rate_limit: {{{limit}}}}}\n"
        );
        let service = Service::new(&flooded, algorithm);
        for client in 0..5_000 {
            let text = format!(
                r#"{{"domain": "d", "descriptors": [{{"entries": [{{"key": "ip", "value": "{client}"}}]}}]}}"#
            );
            service.decide(&json::request(text.as_bytes()).unwrap()).unwrap();
        }
        let left = [(); 4].map(|()| service.ask("a", "")).map(|(code, left, _)| (code, left));
        assert_eq!(left, [(Pass, 2), (Pass, 1), (Pass, 0), (OverLimit, 0)], "{limit}");
        if algorithm == FixedWindow && limit.starts_with("unit") {
            // The bound is 1,000 keys, beside the one of the fixed rule.
            let pages = service.counts.prometheus(false);
            assert!(pages.contains("tollgate_serve_keys{unit=\"year\"} 1001\n"), "{pages}");
            assert!(pages.ends_with("tollgate_serve_shared_total 4062\n"), "{pages}");
        }
    }
}

/// A bucket tells the unit and the number of its rule, however the library holds both.
#[test]
fn a_bucket_tells_the_limit_of_its_unit() {
    for (name, unit) in
        [("second", 1), ("minute", 2), ("hour", 3), ("day", 4), ("month", 5), ("year", 6), ("week", 7)]
    {
        let service = Service::new(&yaml(&[&format!("unit: {name}, requests_per_unit: 60")]), TokenBucket);
        let text = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;
        let status = service.decide(&json::request(text.as_bytes()).unwrap()).unwrap().statuses.remove(0);
        let limit = status.current_limit.unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit, status.limit_remaining), (60, unit, 59), "{name}");
    }
}

#[test]
fn hits_that_are_given_back_leave_no_debt_and_no_credit() {
    let limits = ["unit: day, requests_per_unit: 3", "limit: 3/d burst 3", "limit: 3/d fixed utc"];
    for algorithm in [FixedWindow, TokenBucket] {
        let service = Service::new(&yaml(&limits), algorithm);
        for key in ["a", "b", "c"] {
            service.ask(key, r#", "hits_addend": 2"#);
            let back = r#", "is_negative_hits": true, "hits_addend": "18446744073709551615""#;
            let (code, left, _) = service.ask(key, back);
            assert_eq!((code, left), (Pass, 3), "{key}");
            assert_eq!(service.ask(key, r#", "hits_addend": 3"#).1, 0, "{key}");
            assert_eq!(service.ask(key, "").0, OverLimit, "{key}");
        }
    }
}

#[test]
fn metadata_is_that_of_the_limits_that_passed_and_the_first_wins() {
    let rule = |key: &str, requests: u32, metadata: &str| {
        format!(
            "  - {{key: {key}, metadata: {metadata}, rate_limit: {{unit: hour, requests_per_unit: {requests}}}}}\n"
        )
    };
    let text = "domain: d\ndescriptors:\n".to_owned()
        + &rule("a", 0, "{x: refused}")
        + &rule("b", 9, "{x: 1, y: {z: [true, null], deep: {one: 1}}, l: [1]}")
        + &rule("c", 9, "{x: {no: map}, w: 0.5, y: {z: 7, deep: {one: 2, two: 2}}, l: [2]}");
    let mut service = Service::new(&text, FixedWindow);
    service.options.tells_metadata = true;
    let descriptors = r#"[{"entries": [{"key": "a"}]}, {"entries": [{"key": "b"}]}, {"entries": [{"key": "c", "value": "v"}]},
        {"entries": [], "limit": {"requests_per_unit": 5, "unit": "HOUR"}}, {"entries": [], "limit": {"unit": 99}}]"#;
    let request = format!(r#"{{"domain": "d", "descriptors": {descriptors}}}"#);
    let response = service.decide(&json::request(request.as_bytes()).unwrap()).unwrap();
    let told: serde_json::Value = serde_json::from_str(&json::response(&response)).unwrap();
    let expected = serde_json::json!({
        "domain": "d",
        "descriptors": [
            {"entries": ["a="]}, {"entries": ["b="]}, {"entries": ["c=v"]},
            {"entries": [], "limit": "requests_per_unit:5 unit:HOUR"}, {"entries": [], "limit": "unit:99"},
        ],
        "metadata": {
            "x": 1, "y": {"z": [true, null], "deep": {"one": 1, "two": 2}}, "l": [1], "w": 0.5,
        },
    });
    assert_eq!(told["dynamicMetadata"], expected);
}

#[test]
fn more_texts_than_limiters_may_be_are_refused_by_the_load() {
    let (clock, _mock) = Clock::mock();
    let counts = LimitCounts::new(&CountOptions { max_keys: 10, clock, algorithm: TokenBucket });
    let rules = |rules: u32| {
        let rule = |n: u32| format!("  - {{key: k{n}, rate_limit: {{unit: day, requests_per_unit: {n}}}}}\n");
        let text = "domain: d\ndescriptors:\n".to_owned() + &(1..=rules).map(rule).collect::<String>();
        load(&[("a.yaml".to_owned(), text)], LoadOptions::default()).unwrap()
    };
    assert!(counts.load(rules(256)).is_ok());
    let error = counts.load(rules(257)).err().unwrap();
    assert_eq!(error, "257 different rules of token buckets and texts of `limit`: the most is 256");
}

/// Each key has a share of its own, which only a refusal tells.
#[test]
fn the_waits_of_refusals_are_spread() {
    let mut service = Service::new(&yaml(&["unit: day, requests_per_unit: 1"]), FixedWindow);
    let ask = |service: &Service, value: u64| {
        let entry = format!(r#"{{"entries": [{{"key": "a", "value": "{value}"}}]}}"#);
        let text = format!(r#"{{"domain": "d", "descriptors": [{entry}]}}"#);
        let response = service.decide(&json::request(text.as_bytes()).unwrap()).unwrap();
        response.statuses[0].duration_until_reset.unwrap().seconds - 43_200
    };
    service.options.spread = 10;
    assert!((0..200).all(|value| ask(&service, value) == 0), "granted");
    let waits: Vec<i64> = (0..200).map(|value| ask(&service, value)).collect();
    assert_eq!(waits, (0..200).map(|value| ask(&service, value)).collect::<Vec<_>>());
    let kinds: BTreeSet<i64> = waits.into_iter().collect();
    assert!(kinds.len() > 4 && kinds.iter().all(|wait| (0..=10).contains(wait)), "{kinds:?}");
    service.options.spread = 0;
    assert!((0..200).all(|value| ask(&service, value) == 0));
}
