//! The explanations of a descriptor: its limit, or the reason for none.

use super::load_files;
use crate::rules::explain::{entries, explain};

const RULES: &str = "domain: edge
descriptors:
- key: path
  value: /api/login
  rate_limit: {unit: minute, requests_per_unit: 5}
  descriptors:
  - {key: method, value: PUT, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: path, value: '/img/*', share_threshold: true, shadow_mode: true, rate_limit: {name: img, unit: hour}}
- key: header
  descriptors:
  - {key: PATH, value: /api, rate_limit: {limit: 5/s}}
- key: plan
  value: free
  descriptors:
  - {key: op, value: write, rate_limit: {unlimited: true}}
- key: plan
  descriptors:
  - {key: op, value: read, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: ip, detailed_metric: true, rate_limit: {unit: second, requests_per_unit: 2}}
- {key: ip, value: 10.0.0.1}
";

#[test]
fn a_descriptor_has_its_limit_or_the_reason_for_none() {
    let loaded = load_files(&[("edge.yaml", RULES)]);
    assert_eq!(loaded.errors, []);
    let rows = [
        (
            "path=/api/login",
            "  path: rule \"/api/login\" at edge.yaml:3:3\n\
             \x20 -> 5 each minute, by the rule at edge.yaml:3\n\
             \x20    counted by (path=/api/login), with the statistics edge.path_/api/login\n",
        ),
        (
            "path=/api/login,method=POST",
            "  path: rule \"/api/login\" at edge.yaml:3:3; method: no rule \"POST\", none without a value\n\
             \x20 -> no limit. The rule at edge.yaml:3 has one, but the request goes one level deeper.\n\
             \x20    To limit it whatever the method, ask for (path=/api/login) alone.\n",
        ),
        (
            "path=/img/a.png",
            "  path: wildcard \"/img/*\" at edge.yaml:8:3\n\
             \x20 -> 0 each hour, \"img\", in shadow mode, by the rule at edge.yaml:8\n\
             \x20    counted by (path=/img/*), with the statistics edge.path_/img/*\n",
        ),
        (
            "plan=free,op=write",
            "  plan: rule \"free\" at edge.yaml:12:3; op: rule \"write\" at edge.yaml:15:5\n\
             \x20 -> unlimited, by the rule at edge.yaml:15\n\
             \x20    not counted, with the statistics edge.plan_free.op_write\n",
        ),
        (
            "ip=10.0.0.2",
            "  ip: rule without a value at edge.yaml:19:3\n\
             \x20 -> 2 each second, by the rule at edge.yaml:19\n\
             \x20    counted by (ip=10.0.0.2), with the statistics edge.ip_10.0.0.2\n",
        ),
        (
            "ip=10.0.0.1",
            "  ip: rule \"10.0.0.1\" at edge.yaml:20:3\n\
             \x20 -> no limit. The rule at edge.yaml:20 has none, so it exempts its value.\n",
        ),
        (
            "PATH=/api",
            "  PATH: no rule of this key; did you mean 'path'?\n\
             \x20 -> no limit. No rule matches each entry.\n\
             \x20    The rule at edge.yaml:11 has one for (PATH=/api) behind an entry of edge.yaml:9.\n",
        ),
        (
            "header=x",
            "  header: rule without a value at edge.yaml:9:3\n\
             \x20 -> no limit. The rule at edge.yaml:9 has none; one below it needs an entry more, PATH.\n",
        ),
        (
            "header=x,path=/api",
            "  header: rule without a value at edge.yaml:9:3; path: no rule of this key; did you mean 'PATH'?\n\
             \x20 -> no limit. No rule matches each entry.\n",
        ),
        (
            "PATH=/api,header=x",
            "  PATH: no rule of this key; did you mean 'path'?\n\
             \x20 -> no limit. No rule matches each entry.\n\
             \x20    The rule at edge.yaml:11 has one for (header=x),(PATH=/api): the order counts.\n",
        ),
        (
            "plan=free,op=read",
            "  plan: rule \"free\" at edge.yaml:12:3; op: no rule \"read\", none without a value\n\
             \x20 -> no limit. No rule matches each entry.\n\
             \x20    The rule at edge.yaml:18 has one for these entries, but each level takes its first match, without a way back.\n",
        ),
        (
            "path=/other",
            "  path: no rule \"/other\", none without a value\n\
             \x20 -> no limit. No rule matches each entry.\n",
        ),
        (
            "ip=1.1.1.1,path=/api/login",
            "  ip: rule without a value at edge.yaml:19:3; path: no rule is below\n\
             \x20 -> no limit. The rule at edge.yaml:19 has one, but the request goes one level deeper.\n\
             \x20    To limit it whatever the path, ask for (ip=1.1.1.1) alone.\n",
        ),
        (
            "hedaer=x,PATH=/api",
            "  hedaer: no rule of this key; did you mean 'header'?\n\
             \x20 -> no limit. No rule matches each entry.\n",
        ),
        (
            "plan=Free,op=write",
            "  plan: rule without a value at edge.yaml:16:3; op: no rule \"write\", none without a value\n\
             \x20 -> no limit. No rule matches each entry.\n",
        ),
        (
            "path=/api/login,method=put",
            "  path: rule \"/api/login\" at edge.yaml:3:3; method: no rule \"put\", none without a value; did you mean \"PUT\"?\n\
             \x20 -> no limit. The rule at edge.yaml:3 has one, but the request goes one level deeper.\n\
             \x20    To limit it whatever the method, ask for (path=/api/login) alone.\n",
        ),
    ];
    for (asked, told) in rows {
        let text = explain(&loaded.rules, "edge", &[entries(asked).unwrap()], &|_, _| None);
        let (first, told_of) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("descriptor 1: ({})", asked.replace(',', "),(")));
        assert_eq!(told_of, told, "{asked}");
    }
    let unknown = "the domain 'egde' is unknown, so each request passes; did you mean 'edge'?\n";
    assert_eq!(explain(&loaded.rules, "egde", &[], &|_, _| None), unknown);
}

#[test]
fn the_example_of_the_manual_is_told_as_it_stands_there() {
    let padding = "#\n".repeat(18);
    let below = "descriptors: [{key: method, value: PUT, rate_limit: {unlimited: true}}]";
    let rules = format!(
        "domain: edge\n{padding}descriptors:\n  - key: path\n    value: /api/login\n    \
         rate_limit: {{unit: minute, requests_per_unit: 5}}\n    {below}\n"
    );
    let loaded = load_files(&[("edge.yaml", &rules)]);
    let asked = ["path=/api/login", "path=/api/login,method=POST"].map(|asked| entries(asked).unwrap());
    let told = "descriptor 2: (path=/api/login),(method=POST)
  path: rule \"/api/login\" at edge.yaml:21:5; method: no rule \"POST\", none without a value
  -> no limit. The rule at edge.yaml:21 has one, but the request goes one level deeper.
     To limit it whatever the method, ask for (path=/api/login) alone.
";
    assert!(explain(&loaded.rules, "edge", &asked, &|_, _| None).ends_with(told));
}

#[test]
fn entries_are_keys_and_values() {
    assert_eq!(entries("a=b=c,d="), Ok(vec![("a", "b=c"), ("d", "")]));
    for text in ["", "a", "=a", "a=b,"] {
        let told = format!("\"{text}\" has an entry without a key, as in path=/login,method=POST");
        assert_eq!(entries(text), Err(told));
    }
}
