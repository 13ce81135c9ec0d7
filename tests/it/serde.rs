//! Quotas in configuration files.

use proptest::prelude::*;
use tollgate::{Quota, Window};

use crate::support::{cases, quotas};

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn every_quota_is_read_from_the_json_it_is_written_as(quota in quotas()) {
        let json = serde_json::to_string(&quota).unwrap();
        prop_assert_eq!(&json, &format!("\"{quota}\""));
        prop_assert_eq!(serde_json::from_str::<Quota>(&json).unwrap(), quota);
        // A reader has no text to borrow.
        prop_assert_eq!(serde_json::from_reader::<_, Quota>(json.as_bytes()).unwrap(), quota);
    }
}

#[test]
fn an_error_names_the_bound() {
    let said = |json: &str| serde_json::from_str::<Quota>(json).unwrap_err().to_string();
    for (json, parts) in [
        ("\"0/s\"", ["0 tokens", "the least is 1"]),
        ("\"1/s burst 0\"", ["burst of 0", "the least is 1"]),
        ("\"1/s burst 1099511627777\"", ["1099511627777", "2^40"]),
        ("\"1001/ns burst 5\"", ["1001 tokens", "10^12 tokens a second"]),
        ("\"10/fortnight\"", ["fortnight", "ns, us, ms, s, m, h, d"]),
        ("17", ["integer `17`", "a quota such as \"100/s burst 200\""]),
        ("{\"rate\": 1}", ["map", "a quota such as"]),
        ("null", ["null", "a quota such as"]),
    ] {
        let text = said(json);
        assert!(parts.iter().all(|part| text.contains(part)), "{json}: {text}");
    }
}

#[test]
fn a_window_is_read_from_the_json_that_it_is_written_as() {
    for text in ["1000/d fixed utc", "5/15m sliding", "100/m weighted", "50000/month fixed utc-3"] {
        let window: Window = text.parse().unwrap();
        let json = format!("\"{text}\"");
        assert_eq!(serde_json::to_string(&window).unwrap(), json);
        assert_eq!(serde_json::from_str::<Window>(&json).unwrap(), window);
    }
    let said = |json: &str| serde_json::from_str::<Window>(json).unwrap_err().to_string();
    assert!(said("\"0/d fixed\"").contains("a limit of 0 tokens grants nothing: the least is 1"));
    assert!(said("17").contains("a window such as \"1000/d fixed utc\""));
}
