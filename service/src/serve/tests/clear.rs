//! Counts that an operator sets to 0, in the process.

use std::time::Duration;

use futures_util::FutureExt;

use super::moved::Run;
use crate::serve::clear::{NotCleared, clear};
use crate::serve::counts::Algorithm::FixedWindow;

const QUERY: &str = "domain=d&descriptor=k=v";
const HITS: &str = r#", "hits_addend": 0"#;

fn cleared(run: &Run, query: &str) -> Result<String, String> {
    clear(&run.service, query).now_or_never().unwrap().map_err(|why| match why {
        NotCleared::Query(why) => format!("400 {why}"),
        NotCleared::Absent(why) => format!("404 {why}"),
        NotCleared::Refused(why) => format!("503 {why}"),
    })
}

fn run(rule: &str) -> Run {
    let run = Run::new(FixedWindow, 1_000);
    run.load(&[&format!("key: k, rate_limit: {{{rule}}}")]);
    run
}

#[test]
fn a_count_of_each_kind_begins_with_0_and_those_of_others_go_on() {
    for rule in [
        "unit: hour, requests_per_unit: 5",
        "limit: 5/h",
        "limit: 5/h, charge: after",
        "limit: 5/h sliding",
        "limit: 5/d fixed",
        "limits: [5/h, {unit: day, requests_per_unit: 6}]",
    ] {
        let run = run(rule);
        for value in ["v", "w"] {
            run.ask(value, r#", "hits_addend": 5"#);
            run.ask(value, r#", "hits_addend": 90"#);
            assert!(!run.ask(value, "").0, "{rule}");
        }
        let told = cleared(&run, QUERY).unwrap();
        assert!(told.contains("0 hits of 5, 5 left") && told.contains("; before: "), "{told}");
        assert_eq!(told.lines().count(), if rule.contains("limits") { 2 } else { 1 }, "{told}");
        assert_eq!(run.ask("v", HITS), (true, 5), "{rule}");
        assert!(!run.ask("w", "").0, "{rule}");
        assert_eq!((0..20).filter(|_| run.ask("v", "").0).count(), 5, "{rule}");
    }
}

#[test]
fn a_count_that_a_reload_has_left_elsewhere_does_not_come_back() {
    for is_held in [false, true] {
        let run = run("unit: hour, requests_per_unit: 5");
        run.ask("v", r#", "hits_addend": 5"#);
        run.load(&["key: k, rate_limit: {limit: 6/h}"]);
        // A save keeps the key in both homes.
        let save = is_held.then(|| run.service.counts.moves.stop());
        cleared(&run, QUERY).unwrap();
        drop(save);
        assert_eq!(run.ask("v", HITS), (true, 6), "{is_held}");
    }
}

#[test]
fn what_has_no_count_of_its_own_is_told() {
    let run = run("unlimited: true");
    assert!(cleared(&run, QUERY).unwrap_err().starts_with("404 nothing is counted: the rule at a.yaml:3:5"));
    assert!(cleared(&run, "domain=d&descriptor=x=v").unwrap_err().starts_with("404 descriptor 1: (x=v)"));
    assert!(
        cleared(&run, "domain=e&descriptor=k=v").unwrap_err().starts_with("404 the domain 'e' is unknown")
    );
    assert_eq!(
        cleared(&run, "domain=d").unwrap_err(),
        "400 ask for /count?domain=DOMAIN&descriptor=k=v,k2=v2"
    );
    let run = Run::new(FixedWindow, 20);
    run.load(&["key: k, rate_limit: {unit: hour, requests_per_unit: 5}"]);
    (0..200).for_each(|value| _ = run.ask(&value.to_string(), ""));
    run.mock.advance(Duration::from_secs(1));
    let told = cleared(&run, "domain=d&descriptor=k=199").unwrap_err();
    assert!(told.starts_with("503 for want of room it shares its count"), "{told}");
}
