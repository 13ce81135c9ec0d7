//! Each warning of a load, with its spot.

use super::warnings;

#[test]
fn each_warning_has_its_place() {
    let rows = [
        (
            "descriptors: [{key: k, rate_limit: {unit: day}}]",
            "2:36: a limit without 'requests_per_unit' refuses each request",
        ),
        (
            "descriptors: [{key: k, shadow_mode: true, metadata: {}}, {key: k, value: v}]",
            "2:15: a rule without a limit, and no other rule that it exempts from\n2:37: 'shadow_mode' has no effect without 'rate_limit'\n2:53: 'metadata' has no effect without 'rate_limit'",
        ),
        (
            "unit: day\nname: {domain: 5, metadata: {x: 1}}",
            "2:1: 'unit' has no effect in the document\n3:1: 'name' has no effect in the document",
        ),
        (
            "descriptors: [{key: k, rate_limit: {unlimited: true, requests_per_unit: 5}}]",
            "2:73: 'requests_per_unit' has no effect beside 'unlimited'",
        ),
        (
            "descriptors: [{key: k, value: 10.0.0.1, ipv4_prefix: 24, rate_limit: {unlimited: true}}]",
            "2:54: 'ipv4_prefix' has no effect beside a 'value' without a star",
        ),
        (
            "descriptors: [{key: k, value: '10.*', share_threshold: true, ipv6_prefix: 64, rate_limit: {unlimited: true}}]",
            "2:75: 'ipv6_prefix' has no effect beside 'share_threshold'",
        ),
        ("descriptors: [{key: k, value: '10.*', ipv4_prefix: 0, rate_limit: {unlimited: true}}]", ""),
        // It is a note.
        ("descriptors: [{key: k, rate_limit: {limit: 5/s}}]", ""),
        (
            "descriptors: [{key: k, detailed_metric: true, rate_limit: {unlimited: true}}]",
            "2:41: 'detailed_metric' makes statistics for each value: at most 10000, then 'other'",
        ),
        ("descriptors: [{key: k, value: v, detailed_metric: true, rate_limit: {unlimited: true}}]", ""),
        (
            "descriptors: [{key: k, value: v}]",
            "2:15: a rule without a limit, and no other rule that it exempts from",
        ),
        ("descriptors: [{key: k, value: v}, {key: k, rate_limit: {unlimited: true}}]", ""),
        ("descriptors: [{key: k, value: v}, {key: 'k_*', rate_limit: {unlimited: true}}]", ""),
        ("descriptors: [{key: k, descriptors: [{key: l}]}]", "2:15: no rule below this one has a limit"),
        (
            "descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: l, rate_limit: {unlimited: true}}]}]",
            "2:15: this limit is for requests that end here: one with an entry more passes it by",
        ),
        (
            "descriptors: [{key: k, rate_limit: {unlimited: true, replaces: [{name: n}]}}]",
            "2:15: replaces 'n', and no limit of the domain has this name",
        ),
        (
            "descriptors: [{key: k, rate_limit: {unlimited: true, replaces: [{name: n}]}}, {key: l, rate_limit: {unlimited: true, name: n}}]",
            "",
        ),
        (
            "descriptors: [{key: k, value: 'a*', rate_limit: {unlimited: true}}, {key: k, value: 'a*b*', rate_limit: {unlimited: true}}]",
            "2:69: no request reaches this rule: 'a*' at 2:15 takes each of them",
        ),
        (
            "descriptors: [{key: k, value: 'ab*', rate_limit: {unlimited: true}}, {key: k, value: 'a*', rate_limit: {unlimited: true}}]",
            "",
        ),
        (
            "descriptors: [{key: k, value: '*', rate_limit: {unlimited: true}}, {key: k, rate_limit: {unlimited: true}}]",
            "2:68: no request reaches this rule: '*' at 2:15 takes each of them",
        ),
        (
            "descriptors: [{key: 'k*', rate_limit: {unlimited: true}}, {key: k, value: 'a*', rate_limit: {unlimited: true}}, {key: k, rate_limit: {unlimited: true}}, {key: 'kk*', rate_limit: {unlimited: true}}]",
            "2:59: no request reaches this rule: 'k*' at 2:15 takes each of them\n2:113: no request reaches this rule: 'k*' at 2:15 takes each of them\n2:154: no request reaches this rule: 'k*' at 2:15 takes each of them",
        ),
        (
            "descriptors: [{key: a, value: b_c, rate_limit: {unlimited: true}}, {key: a_b, value: c, rate_limit: {unlimited: true}}]",
            "2:68: the limit at 2:15 has the name 'd.a_b_c' as well: they share their statistics, and the reference takes both for one",
        ),
        ("---\ndomain: e", "2:1: a second document in a file is not read"),
        ("descriptors: [{key: k, value: 'a*'}, {key: k, rate_limit: {unlimited: true}}]", ""),
        (
            "descriptors: [{key: k, value: 'a*'}]",
            "2:15: a rule without a limit, and no other rule that it exempts from",
        ),
    ];
    for (text, told) in rows {
        assert_eq!(warnings(&format!("domain: d\n{text}\n")), told, "{text}");
    }
}

/// Values that are probably read in another way than they are meant.
#[test]
fn a_doubtful_value_is_a_warning() {
    let white = "has white space that no request has; '>-' leaves it out";
    let expression = "is compared as a text, and not as a regular expression; '*' is the only wildcard";
    let rows = [
        ("k", "|\n    /login\n", format!("the value \"/login\\n\" {white}")),
        ("k", "' a'", format!("the value \" a\" {white}")),
        ("'k '", "a", format!("the key \"k \" {white}")),
        ("k", "10.0.0.0/8", "the value '10.0.0.0/8' is compared as a text, and no address is the same; 'masked_remote_address' has networks".to_owned()),
        ("masked_remote_address", "10.0.0.0/8", String::new()),
        ("k", "10.0.0.1", String::new()),
        ("k", "/api/.*", format!("the value '/api/.*' {expression}")),
        ("k", "'^GET$'", format!("the value '^GET$' {expression}")),
        ("k", "/(a|b)", format!("the value '/(a|b)' {expression}")),
        ("k", r"/user/\d+", format!(r"the value '/user/\d+' {expression}")),
        ("k", "'*.*'", String::new()),
        ("k", "10.0.*", String::new()),
        ("k", "api.example.com", String::new()),
        ("k", "/a?b=1", "the value '/a?b=1' has a query: a path with another query passes it by".to_owned()),
        ("k", "/a?*", String::new()),
        ("k", "/a #top", "'value' ends before ' #', where a comment begins; quotes keep the rest".to_owned()),
        ("k", "ä #top", "'value' ends before ' #', where a comment begins; quotes keep the rest".to_owned()),
        ("k", "/a # the top", String::new()),
        ("k", "'/a' #top", String::new()),
        ("k", "'/a #top'", String::new()),
    ];
    for (key, value, told) in rows {
        let file = format!(
            "domain: d\ndescriptors:\n- key: {key}\n  value: {value}\n  rate_limit: {{unlimited: true}}\n"
        );
        let found = warnings(&file);
        assert_eq!(found.split_once(": ").map_or("", |(_, told)| told), told, "{key} {value}");
    }
}

#[test]
fn a_field_of_tollgate_is_a_note() {
    let text = "domain: d\ndescriptors: [{key: k, rate_limit: {limit: 5/s}}]\n";
    let loaded = super::load_files(&[("a.yaml", text)]);
    let told = "a.yaml:2:44: 'limit' is of tollgate: envoyproxy/ratelimit refuses the file";
    assert_eq!((super::lines(&loaded.notes), loaded.warnings), (told.to_owned(), vec![]));
}
