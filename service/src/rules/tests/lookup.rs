//! The rule that a descriptor finds, and the fields of its limit.

use super::load_files;
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::{Amount, Rules};

/// Returns the rules of a domain `d` with these descriptors.
pub(super) fn rules(descriptors: &str) -> Rules {
    let loaded = load_files(&[("a.yaml", &format!("domain: d\ndescriptors:\n{descriptors}"))]);
    assert_eq!(loaded.errors, []);
    loaded.rules
}

/// Returns the entries of a text such as `a=1,b=2`.
pub(super) fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').map(|entry| entry.split_once('=').unwrap())
}

/// Returns the number of requests of the limit that entries find.
pub(super) fn found(rules: &Rules, asked: &str) -> Option<u32> {
    rules.domain("d").unwrap().find(entries(asked)).map(|limit| match limit.amount {
        Amount::Window { requests, .. } => requests,
        _ => u32::MAX,
    })
}

/// Rules of any level, each with a number that the tests name.
const RULES: &str = "
- {key: path, value: '/api/*', rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: path, value: /api/login, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: path, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: multi, value: '/v*/users/*/keys', rate_limit: {unit: hour, requests_per_unit: 4}}
- {key: 'ten*', value: 'x*', rate_limit: {unit: hour, requests_per_unit: 5}}
- {key: tenant, value: '*', rate_limit: {unit: hour, requests_per_unit: 6}}
- {key: 'tenant*', rate_limit: {unit: hour, requests_per_unit: 7}}
- {key: a, value: b_c, rate_limit: {unit: hour, requests_per_unit: 8}}
- {key: plan, value: free, descriptors: [{key: op, value: write, rate_limit: {unit: hour, requests_per_unit: 9}}]}
- {key: plan, descriptors: [{key: op, value: read, rate_limit: {unit: hour, requests_per_unit: 10}}]}
- {key: top, rate_limit: {unit: hour, requests_per_unit: 12}, descriptors: [{key: free, value: yes}]}
- {key: any*, value: v, rate_limit: {unit: hour, requests_per_unit: 11}}
";

#[test]
fn an_entry_finds_its_value_then_the_first_wildcard_then_its_key() {
    let rules = rules(RULES);
    let rows = [
        ("path=/api/login", Some(2)),
        ("path=/api/", Some(1)),
        ("path=/api", Some(3)),
        ("path=", Some(3)),
        ("Path=/api/login", None),
        ("path=/api/x,method=GET", None),
        ("multi=/v1/users/7/keys", Some(4)),
        ("multi=/v/users//keys", Some(4)),
        ("multi=/v1/users/keys", None),
        ("multi=/v1/users/7/keys/", None),
        // The rule of `ten*` was written before those of `tenant`.
        ("tenant=x1", Some(5)),
        ("tent=x1", Some(5)),
        ("ten_t=x1", Some(5)),
        ("tent=y", None),
        ("ten=x1", Some(5)),
        ("ten=s_x1", Some(5)),
        ("tenant=s_x1", Some(5)),
        ("tenant=y", Some(6)),
        ("tenants=y", Some(7)),
        ("a=b_c", Some(8)),
        ("a_b=c", None),
        ("plan=free,op=write", Some(9)),
        ("plan=free,op=read", None),
        ("plan=paid,op=read", Some(10)),
        ("plan=free", None),
        ("top=1", Some(12)),
        ("top=1,free=yes", None),
        ("top=1,free=no", None),
        ("anything=v", Some(11)),
        ("anything=v_v", Some(11)),
        ("anything=w", None),
    ];
    for (asked, wanted) in rows {
        assert_eq!(found(&rules, asked), wanted, "{asked}");
    }
    assert!(rules.domain("e").is_none() && rules.domain("d").unwrap().find(std::iter::empty()).is_none());
}

#[test]
fn a_limit_has_its_name_in_statistics_and_the_patterns_of_its_key() {
    let limit = "rate_limit: {unit: hour}";
    let rows = [
        (format!("{{key: k, {limit}}}"), "k=v", "d.k", false),
        (format!("{{key: k, value: v, {limit}}}"), "k=v", "d.k_v", true),
        (format!("{{key: k, value: v, detailed_metric: true, {limit}}}"), "k=v", "d.k_v", true),
        (format!("{{key: k, detailed_metric: true, {limit}}}"), "k=v", "d.k_v", false),
        (format!("{{key: k, detailed_metric: true, {limit}}}"), "k=", "d.k", false),
        (format!("{{key: k, value: 'f/*', value_to_metric: true, {limit}}}"), "k=f/1", "d.k_f/1", false),
        (
            format!("{{key: k, value: 'f/*', share_threshold: true, value_to_metric: true, {limit}}}"),
            "k=f/1",
            "d.k_f/*",
            true,
        ),
        (
            format!(
                "{{key: a, value_to_metric: true, descriptors: [{{key: b, descriptors: [{{key: c, value_to_metric: true, {limit}}}]}}]}}"
            ),
            "a=1,b=2,c=3",
            "d.a_1.b.c_3",
            false,
        ),
    ];
    let long = "v".repeat(300);
    let (asked, name) = (format!("k={long}"), format!("d.k_{}.5/s", &long[..248]));
    let listed = "{key: k, detailed_metric: true, rate_limit: {limits: [5/s, 9/d]}}".to_owned();
    for (descriptor, asked, name, fixed) in rows.into_iter().chain([(listed, &*asked, &*name, false)]) {
        let rules = rules(&format!("- {descriptor}\n"));
        let limit = rules.domain("d").unwrap().find(entries(asked)).unwrap();
        assert_eq!((&*limit.statistics.of(entries(asked)), limit.fixed), (name, fixed), "{descriptor}");
        assert_eq!(limit.id, 0);
    }
}

#[test]
fn a_shared_entry_has_a_pattern_of_its_key_and_its_value() {
    let limit = "share_threshold: true, rate_limit: {unit: day}";
    let rules = rules(&format!(
        "- {{key: r, value: 'a*', share_threshold: true, descriptors: [{{key: m, rate_limit: {{unit: day}}}}]}}\n\
         - {{key: a, value: 'b_c*', {limit}}}\n- {{key: a_b, value: 'c*', {limit}}}\n- {{key: 'd*', {limit}}}\n"
    ));
    let pattern = |shared: &Option<SharedEntry>| match shared {
        Some(SharedEntry::Pattern(pattern)) => Some(pattern.to_string()),
        _ => None,
    };
    let shared: Vec<Vec<_>> =
        rules.limits().map(|limit| limit.shared.iter().map(pattern).collect()).collect();
    let wanted = [vec![Some("r\0a*"), None], vec![Some("a\0b_c*")], vec![Some("a_b\0c*")], vec![Some("d*")]];
    let wanted =
        wanted.map(|levels| levels.into_iter().map(|level| level.map(str::to_owned)).collect::<Vec<_>>());
    assert_eq!(shared, wanted);
    assert!(rules.limits().map(|limit| limit.fixed).eq([false, true, true, true]));
}

#[test]
fn the_limits_that_later_rules_lack_are_lost() {
    let file =
        |text: &str| super::load_files(&[("a.yaml", &format!("domain: d\ndescriptors: [{text}]\n"))]).rules;
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let before = file(&format!(
        "{{key: a, {limit}}}, {{key: b, value: c, {limit}, descriptors: [{{key: e, {limit}}}]}}, {{key: f}}"
    ));
    let rows = [
        (format!("{{key: b, value: c, {limit}, descriptors: [{{key: e, {limit}}}]}}"), vec!["d.a"]),
        (
            format!("{{key: a, rate_limit: {{unlimited: true}}}}, {{key: b, value: c, {limit}}}"),
            vec!["d.b_c.e"],
        ),
        (String::new(), vec!["d.a", "d.b_c", "d.b_c.e"]),
    ];
    for (later, lost) in rows {
        assert_eq!(before.lost(&file(&later)), lost, "{later}");
    }
}
