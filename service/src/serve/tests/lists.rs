//! Lists of limits: decisions, statistics, and reloads.

use std::time::Duration;

use super::moved::Run;
use super::table::Service;
use crate::rules::tree::Unit;
use crate::serve::counts::Algorithm::{FixedWindow, TokenBucket};
use crate::serve::messages::Code::{Ok as Pass, OverLimit};

fn service(limits: &str, more: &str) -> Service {
    let text = format!(
        "domain: d\ndescriptors:\n  - {{key: k{more}, rate_limit: {{limits: [{limits}], name: n}}}}\n"
    );
    Service::new(&text, FixedWindow)
}

const BOTH: &str = "5/s burst 5, {unit: day, requests_per_unit: 8}";
const LOOK: &str = r#", "hits_addend": 0"#;

#[test]
fn a_request_is_refused_if_any_limit_is_over_and_the_tightest_is_told() {
    let service = service(BOTH, "");
    for left in (0..5).rev() {
        assert_eq!(service.ask("k", "").1, left);
    }
    // The window counts a hit that the bucket refuses, as that of another descriptor does.
    assert_eq!(service.ask("k", ""), (OverLimit, 0, 1));
    service.clock.advance(Duration::from_secs(1));
    assert_eq!(service.ask("k", LOOK).1, 2);
    assert_eq!((0..5).map(|_| service.ask("k", "").0).filter(|code| *code == Pass).count(), 2);
    // Both refuse: the wait is the longer one.
    assert_eq!(service.ask("k", ""), (OverLimit, 0, 43_199));
    let text = service.counts.statistics.lines();
    for line in ["5/s burst 5.total_hits: 12", "8/day.total_hits: 12", "8/day.over_limit: 4"] {
        assert!(text.contains(&format!("rate_limit.d.k.{line}\n")), "{line} in {text}");
    }
}

#[test]
fn hits_that_come_back_come_back_to_each_limit() {
    let service = service("{unit: hour, requests_per_unit: 3}, {unit: day, requests_per_unit: 4}", "");
    (0..3).for_each(|_| _ = service.ask("k", ""));
    assert_eq!(service.ask("k", r#", "is_negative_hits": true, "hits_addend": 2"#).1, 2);
    service.clock.advance(Duration::from_secs(3_600));
    assert_eq!(service.ask("k", LOOK).1, 3);
}

#[test]
fn counting_that_stops_at_a_refusal_adds_to_the_limits_that_refuse() {
    let mut service = service(BOTH, "");
    service.options.stops_when_over = true;
    (0..9).for_each(|_| _ = service.ask("k", ""));
    service.clock.advance(Duration::from_secs(1));
    assert_eq!(service.ask("k", LOOK).1, 3, "the bucket has refused 4 hits, and the day counts none of them");
}

#[test]
fn shadow_quota_and_late_hits_are_those_of_the_whole_list() {
    let shadow = service(BOTH, ", shadow_mode: true");
    assert!((0..20).all(|_| shadow.ask("k", "").0 == Pass));
    let quota = service(BOTH, ", quota_mode: true");
    assert!((0..20).map(|_| quota.ask("k", "").0).any(|code| code == OverLimit));
    let late = service("60/m burst 60, 1000/h burst 100], charge: after, replaces: [{name: x}", "");
    late.ask("k", r#", "hits_addend": 90"#);
    assert_eq!(late.ask("k", LOOK).0, OverLimit, "in debt to the first");
    late.clock.advance(Duration::from_secs(31));
    assert_eq!(late.ask("k", LOOK).0, Pass);
}

/// Returns a rule of this list, or of one limit.
fn rule(limits: &str) -> String {
    format!("key: k, rate_limit: {{limits: [{limits}]}}")
}

#[test]
fn each_limit_of_a_list_keeps_its_count_over_a_change() {
    const HOUR: &str = "{unit: hour, requests_per_unit: 50}";
    const SMALL: &str = "{unit: hour, requests_per_unit: 9}";
    let rows = [
        // One more before it, behind it, and one that goes.
        ("20/d", "5/s, 20/d", 17, 5),
        ("20/d", "20/d, 400/30d", 17, 17),
        ("5/s, 20/d", "20/d", 17, 17),
        ("400/30d, 20/d", "20/d", 17, 17),
        ("5/s, 20/d", "20/d, 5/s", 17, 5),
        // An amount that changes is that of its place.
        ("5/s, 20/d", "5/s, 30/d", 17, 5),
        ("5/s, 20/d", "6/s, 30/d sliding", 27, 6),
        (HOUR, SMALL, 6, 6),
        ("5/s, {unit: hour, requests_per_unit: 50}", "5/s, {unit: hour, requests_per_unit: 9}", 6, 5),
    ];
    for (before, after, left, tightest) in rows {
        for restarts in [false, true] {
            let mut run = Run::new(FixedWindow, 1_000);
            run.load(&[&rule(before)]);
            run.ask("v", r#", "hits_addend": 3"#);
            run.mock.advance(Duration::from_secs(1));
            if restarts {
                run.restart(&[&rule(before)]);
            }
            run.load(&[&rule(after)]);
            let case = format!("[{before}] to [{after}], {restarts}");
            // The bucket of a day fills slowly, and so it has the three hits still.
            assert!((tightest - 1..=tightest).contains(&run.ask("v", LOOK).1), "{case}");
            let granted = (0..60)
                .filter(|_| {
                    run.mock.advance(Duration::from_millis(1_001));
                    run.ask("v", "").0
                })
                .count();
            assert!((left..=left + 1).contains(&granted), "{case}: {granted} of {left}");
        }
    }
}

#[test]
fn a_list_of_units_is_one_of_buckets_by_the_other_algorithm() {
    let mut run = Run::new(TokenBucket, 1_000);
    let list = "{unit: minute, requests_per_unit: 6}, {unit: hour, requests_per_unit: 9}";
    run.load(&[&rule(list)]);
    assert_eq!(run.ask("v", r#", "hits_addend": 4"#), (true, 2));
    run.restart(&[&rule(list)]);
    run.mock.advance(Duration::from_secs(60));
    assert_eq!(run.ask("v", LOOK), (true, 5));
}

/// Windows of several units, as their text is.
#[test]
fn a_window_of_several_units_begins_at_their_multiples_since_1970() {
    for (fields, seconds, algorithm, unit) in [
        ("unit: minute, unit_multiplier: 5", 300, FixedWindow, Unit::Minute),
        ("unit: minute, unit_multiplier: 1", 60, FixedWindow, Unit::Minute),
        ("unit: hour, unit_multiplier: 7", 25_200, FixedWindow, Unit::Hour),
        ("unit: minute, unit_multiplier: 5", 300, TokenBucket, Unit::Minute),
    ] {
        let text = format!(
            "domain: d\ndescriptors:\n- {{key: k, rate_limit: {{{fields}, requests_per_unit: 6}}}}\n"
        );
        let service = Service::new(&text, algorithm);
        let window = 1_789_992_000 % seconds;
        assert_eq!(service.ask("k", LOOK).1, 6, "{fields}");
        assert!((0..6).all(|_| service.ask("k", "").0 == Pass), "{fields}");
        let (code, left, reset) = service.ask("k", "");
        assert_eq!((code, left), (OverLimit, 0), "{fields}");
        let wanted = if algorithm == FixedWindow { seconds - window } else { seconds / 6 };
        assert_eq!(reset as u64, wanted, "{fields}");
        service.clock.advance(Duration::from_secs(reset as u64));
        assert_eq!(service.ask("k", LOOK).1, if algorithm == FixedWindow { 6 } else { 1 }, "{fields}");
        let told = service.answer("k", LOOK).statuses.remove(0).current_limit.unwrap();
        assert_eq!((told.requests_per_unit, told.unit), (6, unit.wire()), "{fields}");
    }
}
