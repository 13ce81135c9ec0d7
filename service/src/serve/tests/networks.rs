//! Decisions by the networks of clients.

use futures_util::FutureExt;

use super::moved::Run;
use crate::serve::clear::clear;
use crate::serve::counts::Algorithm::FixedWindow;
use crate::serve::pages;

const RULE: &str = "key: k, ipv6_prefix: 64, ipv4_prefix: 24, rate_limit: {unit: hour, requests_per_unit: 5}";
const OVERRIDE: &str = r#", "limit": {"requests_per_unit": 5, "unit": "HOUR"}"#;
const OTHER: &str = r#", "limit": {"requests_per_unit": 5, "unit": "DAY"}"#;

#[test]
fn a_client_with_a_network_has_one_count() {
    for more in ["", OVERRIDE, OTHER] {
        let run = Run::new(FixedWindow, 1_000);
        run.load(&[RULE]);
        let left = |values: [&str; 4]| values.map(|value| run.ask(value, more).1);
        let spellings = ["2001:db8::1", "2001:DB8:0:0:ffff::", "2001:db8::/64", "2001:db8::2/128"];
        assert_eq!(left(spellings), [4, 3, 2, 1], "{more}");
        assert_eq!(left(["192.0.2.1", "::ffff:192.0.2.9", "192.0.2.0/24", "192.0.2.0/31"]), [4, 3, 2, 1]);
        assert_eq!(left(["2001:db8:0:1::1", "192.0.3.1", "2001:db8::/48", "ann"]), [4; 4], "{more}");
        assert_eq!(left(["::", "0.0.0.0", "192.0.0.0/16", "ann "]), [4; 4], "{more}");
    }
}

/// A client that is told to have an own limit does not escape the count of the rule by it.
#[test]
fn an_override_has_the_count_of_its_rule() {
    let run = Run::new(FixedWindow, 1_000);
    run.load(&[RULE]);
    assert_eq!([run.ask("2001:db8::1", "").1, run.ask("2001:db8::2", OVERRIDE).1], [4, 3]);
    run.load(&["key: k, ipv6_prefix: 64, value: '2*', rate_limit: {limits: [5/h, 9/d]}"]);
    assert_eq!([run.ask("2001:db8:1::1", "").1, run.ask("2001:db8:1::2", "").1], [4, 3]);
}

#[test]
fn without_the_option_each_spelling_has_a_count() {
    let run = Run::new(FixedWindow, 1_000);
    run.load(&["key: k, rate_limit: {unit: hour, requests_per_unit: 5}"]);
    assert_eq!(run.ask("192.0.2.1", "").1, 4);
    assert_eq!([run.ask("2001:db8::1", "").1, run.ask("2001:DB8::1", "").1], [4, 4]);
    // A whole address of the usual spelling keeps its count, also when the option comes.
    run.load(&["key: k, ipv6_prefix: 128, rate_limit: {unit: hour, requests_per_unit: 5}"]);
    assert_eq!([run.ask("192.0.2.1", "").1, run.ask("2001:DB8::1", "").1], [3, 3]);
}

#[test]
fn the_debug_pages_and_the_clearing_know_the_network() {
    let run = Run::new(FixedWindow, 1_000);
    run.load(&[RULE]);
    (0..3).for_each(|_| _ = run.ask("2001:db8::1", ""));
    let query = "domain=d&descriptor=k=2001:db8::7";
    let told = pages::explanation(&run.service, query).now_or_never().unwrap().unwrap();
    assert!(told.contains("counted by (k=2001:db8::/64)") && told.contains("3 hits of 5"), "{told}");
    let rules = pages::rules(&run.service);
    assert!(rules.ends_with("quota_mode: false, ipv4_prefix: 24, ipv6_prefix: 64\n"), "{rules}");
    let cleared = clear(&run.service, query).now_or_never().unwrap();
    let cleared = cleared.unwrap_or_else(|_| panic!("a count"));
    assert!(cleared.contains("0 hits of 5") && cleared.contains("before: 3 hits"), "{cleared}");
    assert_eq!(run.ask("2001:db8::9", "").1, 4);
}
