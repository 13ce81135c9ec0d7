//! Each error of a load, with its spot and its remedy.

/// The names of fields, as errors list them.
const NAMES: &str = "domain, key, value, descriptors, rate_limit, unit, requests_per_unit, unlimited, shadow_mode, quota_mode, \
     name, replaces, detailed_metric, value_to_metric, share_threshold, metadata, limit, limits, charge, unit_multiplier, ipv4_prefix, ipv6_prefix";

use super::{errors, lines, load_files};

/// A descriptor with a limit of these fields.
fn limit(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {{{fields}}}\n")
}

#[test]
fn each_error_has_its_place_and_its_remedy() {
    let rows = [
        (
            "'''\n".to_owned(),
            "1:1: error loading config file: while scanning a quoted scalar, found unexpected end of stream",
        ),
        ("a\n".to_owned(), "1:1: error loading config file: the document is a map"),
        (
            "domain: d\ndomain: e\n".to_owned(),
            "2:1: error loading config file: the key 'domain' is in this map already",
        ),
        (
            "domain: [d]\n".to_owned(),
            "1:1: config file cannot have empty domain; its first line is domain: NAME\n1:9: error loading config file: 'domain' is a text",
        ),
        ("".to_owned(), "1:1: config file cannot have empty domain; its first line is domain: NAME"),
        (
            "domain: d\ndescriptors: {key: k}\n".to_owned(),
            "2:14: error loading config file: 'descriptors' is a list",
        ),
        (
            "domain: d\ndescriptor: []\n".to_owned(),
            "2:1: config error, unknown key 'descriptor'; did you mean 'descriptors'?",
        ),
        (
            "domain: d\nfrobnicate: []\n".to_owned(),
            "2:1: config error, unknown key 'frobnicate'; there are NAMES",
        ),
        (
            "domain: d\nyes: []\n".to_owned(),
            "2:1: config error, key is not of type string: yes; the fields are NAMES",
        ),
        ("domain: d\n[a]: []\n".to_owned(), "2:1: config error, key is not of type string: a list or a map"),
        (
            "domain: d\ndescriptors: [{key: k, value: 0.25}]\n".to_owned(),
            "2:31: error checking config: 0.25 is a fraction; a text has quotes: '0.25'",
        ),
        (
            "domain: d\ndescriptors: [[], {value: v}]\n".to_owned(),
            "2:15: config error, yaml file contains list of type other than map: a list\n2:19: descriptor has empty key; it needs key: NAME",
        ),
        (
            "domain: d\ndescriptors: [{key: k, share_threshold: true, value: v}]\n".to_owned(),
            "2:41: share_threshold can only be used with wildcard values, those with a '*'",
        ),
        (
            "domain: d\ndescriptors: [{key: k, shadow_mode: maybe}]\n".to_owned(),
            "2:37: error loading config file: 'shadow_mode' is true or false, and not 'maybe'",
        ),
        (
            "domain: d\ndescriptors: [{key: k, shadow_mode: 'true'}]\n".to_owned(),
            "2:37: error loading config file: 'shadow_mode' is true or false, without quotes",
        ),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: 5}]\n".to_owned(),
            "2:36: error loading config file: rate_limit is a map",
        ),
        (
            "domain: d\ndescriptors: [{key: k, metadata: 5, rate_limit: {unit: day}}]\n".to_owned(),
            "2:34: error loading config file: 'metadata' is a map",
        ),
        (
            "domain: d\ndescriptors: [{key: k}, {key: '*'}, {key: '*'}, {key: k}]\n".to_owned(),
            "2:37: duplicate descriptor composite key 'd.*'; the first is at 2:25\n2:49: duplicate descriptor composite key 'd.k'; the first is at 2:15",
        ),
        (
            "domain: d\ndescriptors: [{key: k, value: 'a*'}, {key: k, value: 'a*'}]\n".to_owned(),
            "2:38: duplicate descriptor composite key 'd.k_a*'; the first is at 2:15",
        ),
        (limit("unit: secnod"), "4:22: invalid rate limit unit 'secnod'; did you mean 'second'?"),
        (
            limit("unit: fortnight"),
            "4:22: invalid rate limit unit 'fortnight'; there are second, minute, hour, day, week, month, year",
        ),
        (
            limit("unit: day, requests_per_unit: -1"),
            "4:46: error loading config file: 'requests_per_unit' is a number from 0 to 4294967295, and not -1",
        ),
        (
            limit("unit: day, requests_per_unit: 4294967296"),
            "4:46: error loading config file: 'requests_per_unit' is a number from 0 to 4294967295, and not 4294967296",
        ),
        (
            limit("unit: day, requests_per_unit: '1'"),
            "4:46: error loading config file: 'requests_per_unit' is a number from 0 to 4294967295, without quotes: 1",
        ),
        (
            limit("unit: day, requests_per_unit: 1.5"),
            "4:46: error checking config: 'requests_per_unit' is a number from 0 to 4294967295, and not 1.5",
        ),
        (
            limit("unlimited: true, unit: day"),
            "4:39: should not specify rate limit unit when unlimited; one of both goes",
        ),
        (
            limit("unit: day, replaces: [{}]"),
            "4:38: should not have an empty replaces entry; it needs name: NAME",
        ),
        (
            limit("unit: day, name: n, replaces: [{name: n}]"),
            "4:47: replaces should not contain name of same descriptor: 'n'",
        ),
        (limit("limit: 5/s, unit: day"), "4:34: 'unit' cannot stand beside 'limit'"),
        (limit("limit: 5/s, charge: before"), "4:36: invalid charge 'before'; there is charge: after"),
        (
            limit("unit: day, charge: after"),
            "4:35: 'charge' stands beside a text of 'limit' or 'limits' alone",
        ),
        (
            limit("unit: minute, unit_multiplier: 0, requests_per_unit: 5"),
            "4:47: error loading config file: 'unit_multiplier' is a number from 1 to 4294967295, and not 0",
        ),
        (
            limit("unit: year, unit_multiplier: 4294967295, requests_per_unit: 5"),
            "4:45: invalid limit: cannot read \"5/135446088615120000s fixed utc\" as a rule such as \"100/s burst 200\" or \"1000/d fixed utc\": a period of 135446088615120000000000000 ns is over the bound of 2^62 ns (146 years)",
        ),
        (
            limit("unit: day, unit_multiplier: -1, requests_per_unit: 5"),
            "4:44: error loading config file: 'unit_multiplier' is a number from 1 to 4294967295, and not -1",
        ),
        (limit("limit: 5/s, unit_multiplier: 2"), "4:45: 'unit_multiplier' cannot stand beside 'limit'"),
        (
            limit("unlimited: true, unit_multiplier: 2"),
            "4:50: 'unit_multiplier' cannot stand beside 'unlimited'",
        ),
        (
            limit("unit_multiplier: 2"),
            "4:15: invalid rate limit unit ''; there are second, minute, hour, day, week, month, year",
        ),
        (
            limit("limits: [{unit: hour, unit_multiplier: 2, requests_per_unit: 3}, 3/2h fixed utc]"),
            "4:81: '3/2h fixed utc' has the count of '3/2 hours' in this list: one of both goes",
        ),
        (limit("limits: []"), "4:24: 'limits' has 1 to 8 limits, and not 0"),
        (
            limit("limits: 5/s"),
            "4:24: error loading config file: 'limits' is a list\n4:24: 'limits' has 1 to 8 limits, and not 0",
        ),
        (limit("limits: [5/s], unit: day"), "4:37: 'unit' cannot stand beside 'limits'"),
        (limit("limits: [5/s], limit: 6/s"), "4:38: 'limit' cannot stand beside 'limits'"),
        (limit("limits: [5/s, 5/s]"), "4:30: '5/s' has the count of '5/s' in this list: one of both goes"),
        (
            limit("limits: [{unit: day, requests_per_unit: 5}, {unit: day, requests_per_unit: 9}]"),
            "4:60: '9/day' has the count of '5/day' in this list: one of both goes",
        ),
        (
            limit("limits: [{unit: second, requests_per_unit: 5}, 5/s]"),
            "4:63: '5/s' has the count of '5/second' in this list: one of both goes",
        ),
        (
            limit("limits: [{unit: day, requests_per_unit: 5}, {unit: hour}], charge: after"),
            "4:83: 'charge' stands beside a text of 'limit' or 'limits' alone",
        ),
        (
            limit("limits: [{unlimited: true}, 5/s]"),
            "4:37: 'unlimited' cannot stand in a limit of 'limits', which is a text or a window",
        ),
        (
            limit("limits: [5/s, {limit: 6/m}]"),
            "4:38: 'limit' cannot stand in a limit of 'limits', which is a text or a window",
        ),
        (limit("limits: [5/s, [6/m]]"), "4:30: error loading config file: a limit of 'limits' is a map"),
        (
            limit("limit: 0/s"),
            "4:23: invalid limit: cannot read \"0/s\" as a rule such as \"100/s burst 200\" or \"1000/d fixed utc\": a quota of 0 tokens grants nothing: the least is 1",
        ),
        (
            limit("limit: unlimited"),
            "4:23: invalid limit: unlimited is no rate and no window; there are 'unlimited: true' and 'requests_per_unit: 0'",
        ),
        (
            "domain: d\ndescriptors: [{key: k, ipv6_prefix: 129, ipv4_prefix: 33}]\n".to_owned(),
            "2:37: error loading config file: 'ipv6_prefix' is a number from 0 to 128, and not 129\n2:55: error loading config file: 'ipv4_prefix' is a number from 0 to 32, and not 33",
        ),
        (
            "domain: d\ndescriptors: [{key: k, ipv6_prefix: -1, ipv4_prefix: /24}]\n".to_owned(),
            "2:37: error loading config file: 'ipv6_prefix' is a number from 0 to 128, and not -1\n2:54: error loading config file: 'ipv4_prefix' is a number from 0 to 32, and not /24",
        ),
        (
            "domain: d\ndescriptors: [{key: k, ipv6_prefix: 64, ipv6_prefix: 56}]\n".to_owned(),
            "2:41: error loading config file: the key 'ipv6_prefix' is in this map already",
        ),
        ("a: &a [*a]\n".to_owned(), "1:8: error loading config file: an alias of a node that it stands in"),
        ("a: *b\n".to_owned(), "1:4: error loading config file: while parsing node, found unknown anchor"),
        (
            "<<: 5\n".to_owned(),
            "1:1: error loading config file: a merge key '<<' takes a map or a list of maps",
        ),
    ];
    for (text, told) in rows {
        assert_eq!(errors(&text), told.replace("NAMES", NAMES), "{text}");
    }
}

#[test]
fn all_errors_of_all_files_come_at_once() {
    let files = [
        ("a.yaml", "domain: d\nx: 1\n'"),
        ("b.yaml", "domain: e\nunits: 1\ndescriptors: [{value: v}]\n"),
        ("c.yaml", "domain: e\n"),
    ];
    let told = "a.yaml:3:1: error loading config file: while scanning a quoted scalar, found unexpected end of stream\nb.yaml:2:1: config error, unknown key 'units'; did you mean 'unit'?\nb.yaml:3:15: descriptor has empty key; it needs key: NAME\nc.yaml:1:9: duplicate domain 'e' in config file; the first is at b.yaml:1:9, MERGE_DOMAIN_CONFIG=true merges both";
    assert_eq!(lines(&load_files(&files).errors), told);
}
