//! The forms of YAML that say the same, and the values that are read as they are written.

use serde_json::json;

use super::lookup::{found, rules};
use super::{errors, load_files, warnings};
use crate::rules::tree::{Amount, Unit};

#[test]
fn each_form_of_a_file_loads() {
    let rows = [
        "\u{feff}domain: d\r\ndescriptors:\r\n  - key: k\r\n    rate_limit:\r\n      unit: hour\r\n      requests_per_unit: 5\r\n",
        "--- # a comment\ndomain: d\ndescriptors: [{key: k, rate_limit: {unit: HOUR, requests_per_unit: 0x5}}]\n...\n",
        "domain: !!str d\ndescriptors:\n- \"key\": 'k'\n  rate_limit: !!map {unit: Hour, requests_per_unit: 0b101, unlimited: off}\n",
        "domain: d\t\ndescriptors:\n- key: k\t\n  rate_limit:\t# a tab\n    unit: hour\n    requests_per_unit: 05\n",
        "domain: &d d\ndescriptors:\n- &a\n  key: k\n  rate_limit: &l {unit: hour, requests_per_unit: 5}\n- {<<: *a, key: l, value: ~}\n",
        "domain: d\ndescriptors:\n- {key: k, rate_limit: {<<: [{unit: hour}, {unit: day, requests_per_unit: 5}]}}\n",
        "domain: d\ndescriptors:\n- key: >-\n    k\n  rate_limit: {unit: hour, requests_per_unit: +5, unlimited: n}\n",
    ];
    for text in rows {
        let loaded = load_files(&[("a.yaml", text)]);
        assert_eq!(loaded.errors, [], "{text}");
        assert_eq!(found(&loaded.rules, "k=v"), Some(5), "{text}");
        let limit = loaded.rules.limits().next().unwrap();
        assert!(matches!(limit.amount, Amount::Window { unit: Unit::Hour, .. }), "{text}");
    }
}

#[test]
fn a_value_is_a_text_as_it_is_written() {
    for value in [
        "10",
        "007",
        "0x1F",
        "true",
        "yes",
        "2026-11-27",
        "1:30",
        "'0.25'",
        "!!str 0.25",
        "1_000",
        "10.0.0.1",
        "1e",
    ] {
        let rules = rules(&format!(
            "- {{key: k, value: {value}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n"
        ));
        let text = value.trim_start_matches("!!str ").trim_matches('\'');
        assert_eq!(found(&rules, &format!("k={text}")), Some(1), "{value}");
        assert_eq!(found(&rules, "k=other"), None, "{value}");
    }
    for value in ["1.", ".5", "-1.5e3", "1e5", "1_0.5", ".inf", "-.INF", ".nan"] {
        let told = errors(&format!("domain: d\ndescriptors: [{{key: k, value: {value}}}]\n"));
        assert_eq!(
            told,
            format!("2:31: error checking config: {value} is a fraction; a text has quotes: '{value}'")
        );
    }
}

#[test]
fn metadata_is_typed_as_yaml_types_it() {
    let metadata =
        "{a: 1, b: yes, c: [0.5, ~, '1'], d: {e: text, 5: .inf}, any_key: -0x10, f: 010, <<: {a: 2, g: 08}}";
    let rules = rules(&format!("- {{key: k, metadata: {metadata}, rate_limit: {{unlimited: true}}}}\n"));
    let wanted = json!({"a": 1, "b": true, "c": [0.5, null, "1"], "d": {"e": "text", "5": ".inf"}, "any_key": -16, "f": 8, "g": "08"});
    assert_eq!(rules.limits().next().unwrap().metadata.as_deref(), Some(&wanted));
}

#[test]
fn an_empty_domain_and_no_file_are_rules_without_limits() {
    assert_eq!(warnings("domain: d\n"), "");
    let loaded = load_files(&[]);
    assert!(loaded.errors.is_empty() && loaded.rules.is_empty());
    assert_eq!(loaded.rules.limits().len(), 0);
}
