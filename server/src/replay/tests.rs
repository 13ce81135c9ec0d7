use std::io::Cursor;
use std::time::Duration;

use serde_json::Value;
use tollgate::Clock;
use tollgate_testing::Random;

use super::lines::FieldNames;
use super::run::{Replay, Side};
use crate::rules::load::{LoadOptions, load};
use crate::service::checks::{Check, CheckedRequest};
use crate::service::counts::{Algorithm, CountOptions, LimitCounts};
use crate::service::decide::{DecisionOptions, decide};
use crate::service::messages::Code;

const RULES: &str = r#"
domain: edge
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /login
    rate_limit: {limit: "2/m"}
"#;

const PROFILE: &str = r#"
[check.edge]
domain = "edge"
from = []
descriptors = [{ ip = "{client}" }, { path = "{path}" }]
"#;

fn rules(text: &str) -> crate::rules::tree::Rules {
    load(&[("edge.yaml".to_owned(), text.to_owned())], LoadOptions::default()).expect("valid rules")
}

fn check() -> Check {
    Check::all(PROFILE).expect("a valid profile").remove("edge").expect("its table")
}

fn replay(sides: &[&str], log: &str) -> (Replay, Value) {
    replay_by(Algorithm::FixedWindow, sides, log)
}

fn replay_by(algorithm: Algorithm, sides: &[&str], log: &str) -> (Replay, Value) {
    let options = || CountOptions { algorithm, ..CountOptions::default() };
    let sides = sides.iter().map(|text| Side::new(rules(text), options()).expect("few texts"));
    let mut replay = Replay::new(check(), FieldNames::default(), sides.collect());
    let mut bytes = 0;
    replay.read(&mut Cursor::new(log), &mut |line| bytes += line).expect("no error of a file");
    assert_eq!(bytes, log.len());
    replay.end();
    let report = replay.report();
    (replay, report)
}

fn line(at: u64, client: u64, path: &str) -> String {
    format!("{{\"time\":{at},\"client\":\"192.0.2.{client}\",\"path\":\"{path}\"}}\n")
}

/// The refusals of a service that is asked at the times of a log, which is in order.
fn live(log: &[(u64, u64, &str)]) -> u64 {
    let (clock, mock) = Clock::mock();
    let counts = LimitCounts::new(&CountOptions { clock, ..CountOptions::default() });
    let loaded = counts.load(rules(RULES)).expect("few texts");
    let (check, mut now, mut refused) = (check(), 0, 0);
    for (at, client, path) in log {
        mock.advance(Duration::from_secs(at - now));
        now = *at;
        let client = format!("192.0.2.{client}").into();
        let asked = CheckedRequest { client, method: "GET", target: path, host: "", header: &|_| None };
        let options = DecisionOptions::default();
        let answer = decide(&loaded, &counts, &options, &check.message(&asked), counts.now());
        refused += u64::from(answer.expect("a decision").overall_code() == Code::OverLimit);
    }
    refused
}

#[test]
fn a_log_is_refused_what_a_live_service_refuses_in_whatever_order_its_lines_are() {
    let mut random = Random(44);
    for _ in 0..20 {
        let mut at = 1_795_745_400;
        let mut log: Vec<_> = (0..500)
            .map(|_| {
                at += 1 + random.below(4);
                (at, random.below(5), random.pick(&["/", "/login", "/%6cogin"]))
            })
            .collect();
        let wanted = live(&log);
        // Each line is up to 50 s late.
        log.sort_by_cached_key(|(at, ..)| at + random.below(50));
        let text: String = log.iter().map(|(at, client, path)| line(*at, *client, path)).collect();
        let (_, report) = replay(&[RULES], &text);
        assert_eq!((&report["requests"], &report["late"]), (&500.into(), &0.into()));
        assert_eq!(report["sides"][0]["refused"], wanted);
        assert!(wanted > 0);
    }
}

#[test]
fn the_report_tells_keys_the_worst_minute_and_the_smallest_limits() {
    let begin = 1_795_745_400 / 60 * 60;
    // 5 requests of one client in a minute, then 4, and one of each of 90 others.
    let mut text: String = (0..5).map(|second| line(begin + second, 200, "/")).collect();
    text.extend((0..4).map(|second| line(begin + 60 + second, 200, "/")));
    text.extend((0..90).map(|client| line(begin + 120, client, "/")));
    text.push_str("no line of a log\n\n");
    let (replay, report) = replay(&[RULES], &text);
    assert_eq!((&report["requests"], &report["unreadable"]), (&99.into(), &1.into()));
    let limit = &report["sides"][0]["limits"][0];
    assert_eq!(limit["limit"], "3 per minute");
    for (name, wanted) in [("requests", 99), ("refused", 3), ("keys", 91), ("keys_refused", 1)] {
        assert_eq!(limit[name], wanted, "{name}");
    }
    assert_eq!(limit["worst_minute"]["refused"], 2);
    assert_eq!(limit["most_refused"][0]["key"], "ip=192.0.2.200");
    // A limit of 4 refuses 1 of 99, which is not under 1 %.
    assert_eq!([&limit["smallest"]["under 1 %"], &limit["smallest"]["none"]], ["5", "5"]);
    let words = replay.text(&report);
    for part in ["99 requests, 1 lines", "3 refused (3.03 %)", "2 refused at 20", "        3 ip=192.0.2.200"]
    {
        assert!(words.contains(part), "no {part:?} in {words}");
    }
    assert!(replay.timeline.svg().starts_with("<svg"));
}

#[test]
fn a_limit_of_text_form_is_tried_at_its_multiples() {
    let text: String = (0..16).map(|_| line(1_795_745_400, 1, "/login")).collect();
    let (_, report) = replay(&[RULES], &text);
    let limit = &report["sides"][0]["limits"][1];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&14.into(), &"16/m burst 16".into()));
}

/// Weeks begin on Monday for the limit and for the smallest one. A Thursday is no edge.
#[test]
fn the_smallest_limit_of_a_week_counts_the_weeks_of_the_service() {
    let weekly = RULES.replace("unit: minute", "unit: week");
    // A Tuesday, and the Friday of the same week.
    let times = [1_790_078_400, 1_790_078_401, 1_790_337_600, 1_790_337_601];
    let text: String = times.iter().map(|at| line(*at, 1, "/")).collect();
    let limit = &replay(&[&weekly], &text).1["sides"][0]["limits"][0];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&1.into(), &"4".into()));
}

#[test]
fn the_smallest_limit_of_a_bucket_is_a_bucket() {
    let begin = 1_795_745_400 / 60 * 60;
    // Three at the end of a minute and three at the begin of the next are within each window.
    let text: String = (57..63).map(|second| line(begin + second, 1, "/")).collect();
    let limit = &replay(&[RULES], &text).1["sides"][0]["limits"][0];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&0.into(), &"3".into()));
    let limit = &replay_by(Algorithm::TokenBucket, &[RULES], &text).1["sides"][0]["limits"][0];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&3.into(), &"6/m burst 6".into()));
}

/// Such as milliseconds in place of seconds.
#[test]
fn a_time_beyond_the_clock_is_no_line() {
    let text: String = (0..9).map(|n| line(1_795_745_400_000 + n, 1, "/login")).collect();
    let (replay, report) = replay(&[RULES], &text);
    assert_eq!((&report["requests"], &report["unreadable"]), (&0.into(), &9.into()));
    assert!(replay.timeline.svg().starts_with("<svg"));
}

#[test]
fn two_configurations_are_set_side_by_side() {
    let text: String = (0..10).map(|_| line(1_795_745_400, 1, "/")).collect();
    let (replay, report) = replay(&[RULES, &RULES.replace("unit: 3", "unit: 8")], &text);
    assert_eq!(report["refused_only_by"], serde_json::json!([5, 0]));
    assert_eq!([&report["sides"][0]["refused"], &report["sides"][1]["refused"]], [7, 2]);
    assert!(replay.text(&report).contains("== first: 5 that the other one grants"));
}

#[test]
fn hostile_lines_end_nothing() {
    let mut text = vec![b'x'; 3 << 20];
    text.extend(b"\n\xff\xfe\n{\"time\":1e308,\"client\":\"a\",\"path\":\"/\"}\n");
    text.extend(line(u64::MAX / 2_000_000_000, 1, "/").bytes());
    text.extend(line(1, 1, "/").bytes());
    let side = Side::new(rules(RULES), CountOptions::default()).expect("few texts");
    let mut replay = Replay::new(check(), FieldNames::default(), vec![side]);
    replay.read(&mut Cursor::new(text), &mut |_| ()).expect("no error of a file");
    replay.end();
    assert_eq!((replay.requests, replay.unreadable), (2, 5));
}
