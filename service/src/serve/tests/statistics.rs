//! The names of statistics, their bound, and the lines of both pages.

use std::time::Duration;

use super::moved::Run;
use crate::serve::counts::Algorithm;
use crate::serve::limit_gauge;
use crate::serve::limiters::Hits;
use crate::serve::statistics::Statistics;

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|each| each == line)
}

#[test]
fn a_name_has_no_character_that_means_something_in_a_line() {
    let statistics = Statistics::default();
    for (name, told) in [
        ("d.ip_192.0.2.17", "d.ip_192_0_2_17"),
        ("d.10.0.0.1.x", "d.10_0_0_1.x"),
        ("d.v1.2.3", "d.v1.2.3"),
        ("d.a:b|c", "d.a_b_c"),
        ("d.é\n", "d.é_"),
    ] {
        statistics.numbers(name).asked(1);
        let lines = statistics.lines();
        assert!(
            has_line(&lines, &format!("ratelimit.service.rate_limit.{told}.total_hits: 1")),
            "{name}: {lines}"
        );
    }
}

#[test]
fn names_of_requests_are_bounded() {
    let statistics = Statistics::default();
    let rules = [Some("d.rule".to_owned())];
    let numbers = statistics.name_rules(&rules);
    statistics.domain_not_found("a:b");
    for n in 0..10_100 {
        statistics.numbers(&format!("d.{n}")).asked(1);
        statistics.domain_not_found(&format!("d{n}"));
    }
    statistics.domain_not_found("a:b");
    statistics.numbers("d.5").asked(1);
    statistics.numbers("d.rule").asked(7);
    assert_eq!(numbers.len(), 1);
    let lines = statistics.lines();
    for line in [
        "rate_limit.d.5.total_hits: 2",
        "rate_limit.d.rule.total_hits: 7",
        "rate_limit.other.total_hits: 100",
        "rate_limit.a_b.domain_not_found: 2",
        "rate_limit.other.domain_not_found: 101",
    ] {
        assert!(has_line(&lines, &format!("ratelimit.service.{line}")), "{line}");
    }
    // The first 10,000 names, the rule and `other`, with six lines each; the domains; four more.
    assert_eq!(lines.lines().count(), 6 * 10_002 + 10_001 + 4);
}

#[test]
fn a_load_keeps_the_counters_of_a_name() {
    let statistics = Statistics::default();
    let named = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
    let total = |name: &str| {
        let start = format!("ratelimit.service.rate_limit.{name}.total_hits: ");
        statistics.lines().lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok())
    };
    statistics.name_rules(&named(&["d.a", "d.b"]))[0].as_ref().unwrap().asked(3);
    statistics.numbers("d.c").asked(4);
    // Two rules of one name have the same counters.
    let again = statistics.name_rules(&named(&["d.c", "d.a", "d.a"]));
    again[1].as_ref().unwrap().asked(1);
    again[2].as_ref().unwrap().asked(1);
    assert_eq!((total("d.a"), total("d.b"), total("d.c")), (Some(5), None, Some(4)));
}

#[test]
fn prometheus_has_the_names_of_the_reference() {
    let statistics = Statistics::default();
    // The reference tells the first two levels. The others are a label more.
    statistics.numbers("d.k_v.m.user_\"x.z").over(Hits { before: 3, after: 7 }, 5, 4, true);
    statistics.config_loaded();
    statistics.config_refused();
    statistics.service_error();
    statistics.call(Duration::from_micros(700));
    statistics.call(Duration::from_secs(3));
    let text = statistics.prometheus(false);
    let labels = r#"{domain="d",key1="k_v",key2="m",key3="user_\"x.z"}"#;
    let method = r#"grpc_method="ShouldRateLimit""#;
    for line in [
        format!("ratelimit_service_rate_limit_over_limit{labels} 2"),
        format!("ratelimit_service_rate_limit_near_limit{labels} 1"),
        format!("ratelimit_service_rate_limit_shadow_mode{labels} 2"),
        "ratelimit_service_config_load_success 1".to_owned(),
        "ratelimit_service_config_load_error 1".to_owned(),
        r#"ratelimit_service_should_rate_limit_error{err_type="service_error"} 1"#.to_owned(),
        format!("ratelimit_service_total_requests{{{method}}} 2"),
        format!("ratelimit_service_response_time_seconds_bucket{{{method},le=\"0.0005\"}} 0"),
        format!("ratelimit_service_response_time_seconds_bucket{{{method},le=\"0.001\"}} 1"),
        format!("ratelimit_service_response_time_seconds_bucket{{{method},le=\"+Inf\"}} 2"),
        format!("ratelimit_service_response_time_seconds_sum{{{method}}} 3.0007"),
    ] {
        assert!(has_line(&text, &line), "{line} in\n{text}");
    }
    let bound = format!("ratelimit_service_response_time_seconds_bucket{{{method},le=\"0.5\"}} 0");
    assert!(has_line(&statistics.prometheus(true), &bound));
}

/// A client chooses the length of a value, and a name of `detailed_metric` has it.
#[test]
fn a_name_of_a_request_is_short_and_one_of_a_rule_is_whole() {
    let statistics = Statistics::default();
    let rule = format!("d.{}", "r".repeat(1_000));
    statistics.name_rules(&[Some(rule.clone())]);
    for value in ["v".repeat(60_000), "\u{e9}".repeat(60_000)] {
        statistics.numbers(&format!("d.k_{value}")).asked(1);
        statistics.domain_not_found(&value);
    }
    statistics.numbers(&rule).asked(1);
    let lines = statistics.lines() + &statistics.prometheus(false);
    assert!(has_line(&lines, &format!("ratelimit.service.rate_limit.{rule}.total_hits: 1")), "{lines}");
    let is_long = |line: &&str| line.len() > 400 && !line.contains("rrr");
    assert_eq!(lines.lines().find(is_long), None);
}

#[test]
fn descriptors_that_no_rule_matches_are_counted_by_their_keys() {
    let statistics = Statistics::default();
    statistics.domain_not_found("x");
    for keys in [&["path"][..], &["path", "method"], &["path"]] {
        statistics.unmatched("d", keys.iter().copied());
    }
    for n in 0..2_000 {
        statistics.unmatched("d", [&*n.to_string()].into_iter());
    }
    let text = statistics.prometheus(false);
    for line in [
        r#"{domain="x",keys=""} 1"#,
        r#"{domain="d",keys="path"} 2"#,
        r#"{domain="d",keys="path,method"} 1"#,
        r#"{domain="d",keys="997"} 1"#,
        r#"{domain="other",keys=""} 1002"#,
    ] {
        assert!(has_line(&text, &format!("tollgate_serve_unmatched_total{line}")), "{line}");
    }
}

/// A load may name a rule between the lookup of a name and its insertion.
#[test]
fn a_name_that_a_load_has_made_meanwhile_has_one_series() {
    let statistics = Statistics::default();
    statistics.name_rules(&[Some("d.a".to_owned())]);
    statistics.add("d.a").asked(1);
    assert_eq!(statistics.lines().matches("rate_limit.d.a.total_hits: 1\n").count(), 1);
    assert_eq!(statistics.lines().matches("rate_limit.d.a.total_hits").count(), 1);
}

/// A name is cut at 256 bytes, and is told six times. Uncut, or without a bound on all bytes, the
/// text would have 15 MB or more.
#[test]
fn a_scrape_is_bounded_in_bytes() {
    let statistics = Statistics::default();
    let long = "v".repeat(300);
    // 7 bytes, and 4,095 names of 256.
    statistics.numbers("d.known").asked(1);
    for name in 0..10_000 {
        statistics.numbers(&format!("d.{name}{long}")).asked(1);
        statistics.domain_not_found(&format!("{name}{long}"));
    }
    let text = statistics.prometheus(false);
    assert!(text.len() < 10 << 20 && statistics.lines().len() < 10 << 20, "{} bytes", text.len());
    assert!(
        has_line(&text, r#"ratelimit_service_rate_limit_total_hits{domain="other"} 5905"#),
        "{text:.400}"
    );
    assert!(has_line(&text, "tollgate_serve_names_left_out_total 5905"));
    // A name that is known goes on, and one that is a rule's gives its room to another.
    statistics.numbers("d.known").asked(1);
    statistics.name_rules(&[Some("d.known".to_owned())]);
    statistics.numbers(&format!("d.new{long}")).asked(1);
    assert!(has_line(&statistics.prometheus(false), "tollgate_serve_names_left_out_total 5905"));
}

#[test]
fn each_limit_in_force_is_a_gauge_with_its_unit() {
    let rules = "key: a, rate_limit: {unit: hour, requests_per_unit: 5}
key: a, value: 10.0.0.1, rate_limit: {limit: 7/15m sliding}
key: b, rate_limit: {unlimited: true}
key: c, rate_limit: {limits: [9/d, {unit: day, requests_per_unit: 8}]}
key: e, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 3}
key: d, value: 'v*', detailed_metric: true, rate_limit: {unit: week}";
    let run = Run::new(Algorithm::FixedWindow, 1_000);
    run.load(&rules.lines().collect::<Vec<_>>());
    let told = limit_gauge::lines(run.service.in_force().loaded.as_ref().unwrap());
    let lines: Vec<&str> = told.lines().skip(1).collect();
    let wanted = [
        r#"{domain="d",key1="a",unit="hour"} 5"#,
        r#"{domain="d",key1="a_10_0_0_1",unit="15m"} 7"#,
        r#"{domain="d",key1="c",key2="8/day",unit="day"} 8"#,
        r#"{domain="d",key1="c",key2="9/d",unit="day"} 9"#,
        r#"{domain="d",key1="d_v*",unit="week"} 0"#,
        r#"{domain="d",key1="e",unit="5m"} 3"#,
    ];
    assert_eq!(lines, wanted.map(|line| format!("tollgate_serve_limit{line}")));
    run.load(&["key: a, rate_limit: {unit: hour, requests_per_unit: 6}"]);
    let told = limit_gauge::lines(run.service.in_force().loaded.as_ref().unwrap());
    assert!(
        told.ends_with("gauge\ntollgate_serve_limit{domain=\"d\",key1=\"a\",unit=\"hour\"} 6\n"),
        "{told}"
    );
}
