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
- {key: user, rate_limit: {limits: ['10/s burst 20', {unit: day, requests_per_unit: 9}]}}
";

#[test]
fn a_descriptor_has_its_limit_or_the_reason_for_none() {
    let loaded = load_files(&[("edge.yaml", RULES)]);
    assert_eq!(loaded.errors, []);
    let rows = [
        (
            "user=ann",
            "  user: rule without a value at edge.yaml:21:3\n\
             \x20 -> 10/s burst 20, by the rule at edge.yaml:21\n\
             \x20    counted by (user=ann), with the statistics edge.user.10/s burst 20\n\
             \x20    9 each day, by the rule at edge.yaml:21\n\
             \x20    counted by (user=ann), with the statistics edge.user.9/day\n",
        ),
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
        let text = explain(&loaded.rules, "edge", &[entries(asked).unwrap()], &[]);
        let (first, told_of) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("descriptor 1: ({})", asked.replace(',', "),(")));
        assert_eq!(told_of, told, "{asked}");
    }
    let unknown = "the domain 'egde' is unknown, so each request passes; did you mean 'edge'?\n";
    assert_eq!(explain(&loaded.rules, "egde", &[], &[]), unknown);
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
    assert!(explain(&loaded.rules, "edge", &asked, &[]).ends_with(told));
}

#[test]
fn entries_are_keys_and_values() {
    let rows: [(&str, &[(&str, &str)]); 5] = [
        ("a=b=c,d=", &[("a", "b=c"), ("d", "")]),
        (r"a=b\,c,d=e", &[("a", "b,c"), ("d", "e")]),
        (r"a=\\,d=e", &[("a", r"\"), ("d", "e")]),
        (r"a=\d+\", &[("a", r"\d+\")]),
        (r"a\,b=\,", &[("a,b", ",")]),
    ];
    for (text, wanted) in rows {
        let told = entries(text).unwrap();
        let told: Vec<_> = told.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(told, wanted, "{text}");
    }
    for (text, part) in [
        ("", "\"\" has no '='"),
        ("foo", "\"foo\" has no '='"),
        ("=a", "\"=a\" has no key"),
        ("a=b,", "\"\" has no '='"),
    ] {
        let told = entries(text).unwrap_err();
        assert!(told.contains(part), "{part} in {told}");
    }
}

/// Values that look like that of a request, and are another one: each has its reason in `explain`.
#[test]
fn a_value_that_is_nearly_that_of_a_rule_has_the_reason() {
    let rows = [
        (
            "/api",
            "/api/users",
            "the rule \"/api\" is a beginning only, and a value is compared as a whole; '/api*' takes the rest",
        ),
        (
            "/login",
            "/login?next=/",
            "the request has a query, and the rule \"/login\" has none; '/login?*' takes any",
        ),
        ("'/login?a=1'", "/login", "the rule \"/login?a=1\" has a query, and the request has none"),
        ("10.0.0.0/8", "10.1.2.3", "the rule \"10.0.0.0/8\" is a network, and is compared as a text"),
        (
            "2001:db8::/32",
            "2001:db8::7",
            "the rule \"2001:db8::/32\" is a network, and is compared as a text",
        ),
        ("/api/.*", "/api/users", "the rule \"/api/.*\" is no regular expression; '*' is the only wildcard"),
        (
            "'^/v[0-9]+/x$'",
            "/v1/x",
            "the rule \"^/v[0-9]+/x$\" is no regular expression; '*' is the only wildcard",
        ),
        ("|\n    /login\n", "/login", "the rule \"/login\\n\" has white space at an end"),
        (
            "/a #b",
            "/a #b",
            "the rule \"/a\" ends before ' #', where a comment of YAML begins; quotes keep it",
        ),
        ("/a", "/b", ""),
        ("/a*", "/b", ""),
        ("10.0.*", "10.1.2.3", ""),
        ("10.0.0.0/8", "11.1.2.3", ""),
    ];
    for (value, asked, why) in rows {
        let file = format!(
            "domain: d\ndescriptors:\n- key: k\n  value: {value}\n  rate_limit: {{unlimited: true}}\n"
        );
        let loaded = load_files(&[("a.yaml", &file)]);
        assert_eq!(loaded.errors, [], "{value}");
        let text = explain(&loaded.rules, "d", &[vec![("k".to_owned(), asked.to_owned())]], &[]);
        let line = text.lines().nth(1).unwrap();
        let told = if why.is_empty() { String::new() } else { format!("; {why}") };
        assert_eq!(line, format!("  k: no rule \"{asked}\", none without a value{told}"), "{value}");
    }
}

/// Questions of issues, each with the configuration of the thread: the number, the file, the domain
/// and the descriptor of the request, and the answer without its first line.
#[test]
fn the_questions_of_issues_are_answered() {
    let rows = [
        (
            "istio #50591: the path is asked for without the header of the level above",
            "domain: api-ratelimit\ndescriptors:\n  - key: ratelimitheader\n    descriptors:\n    - key: PATH\n      \
             value: \"/api/CustomerControllers\"\n      rate_limit: {unit: minute, requests_per_unit: 1}\n",
            ("api-ratelimit", "PATH=/api/CustomerControllers"),
            "  PATH: no rule of this key; there are ratelimitheader\n\
             \x20 -> no limit. No rule matches each entry.\n\
             \x20    The rule at a.yaml:5 has one for (PATH=/api/CustomerControllers) behind an entry of a.yaml:3.\n",
        ),
        (
            "istio #22068: the rule has the key of another action of Envoy",
            "domain: test\ndescriptors:\n  - key: header_match\n    value: quote-path-auth\n    \
             rate_limit: {unit: minute, requests_per_unit: 2}\n",
            ("test", "auth=secret"),
            "  auth: no rule of this key; there are header_match\n\
             \x20 -> no limit. No rule matches each entry.\n",
        ),
        (
            "istio #22068: the answer of the thread, a key without a value",
            "domain: test\ndescriptors:\n  - key: auth\n    rate_limit: {unit: minute, requests_per_unit: 60}\n",
            ("test", "auth=secret"),
            "  auth: rule without a value at a.yaml:3:5\n\
             \x20 -> 60 each minute, by the rule at a.yaml:3\n\
             \x20    counted by (auth=secret), with the statistics test.auth\n",
        ),
        (
            "envoy #21465: the domain is no part of the key, and the rule is found",
            "domain: mydomain.com\ndescriptors:\n    - key: remote_address\n      value: 10.10.10.10\n      \
             rate_limit: {unit: minute, requests_per_unit: 2}\n",
            ("mydomain.com", "remote_address=10.10.10.10"),
            "  remote_address: rule \"10.10.10.10\" at a.yaml:3:7\n\
             \x20 -> 2 each minute, by the rule at a.yaml:3\n\
             \x20    counted by (remote_address=10.10.10.10), with the statistics \
             mydomain.com.remote_address_10.10.10.10\n",
        ),
        (
            "envoy #26303: a value is no pattern of a header",
            "domain: d\ndescriptors:\n- {key: authorization, value: test, rate_limit: {unit: minute, \
             requests_per_unit: 100}}\n",
            ("d", "authorization=Bearer x"),
            "  authorization: no rule \"Bearer x\", none without a value\n\
             \x20 -> no limit. No rule matches each entry.\n",
        ),
        (
            "envoy #26303: a star in the value",
            "domain: d\ndescriptors:\n- {key: authorization, value: '*', rate_limit: {unit: minute, \
             requests_per_unit: 100}}\n",
            ("d", "authorization=Bearer x"),
            "  authorization: wildcard \"*\" at a.yaml:3:3\n\
             \x20 -> 100 each minute, by the rule at a.yaml:3\n\
             \x20    counted by (authorization=Bearer x), with the statistics d.authorization_*\n",
        ),
    ];
    for (question, file, (domain, asked), told) in rows {
        let loaded = load_files(&[("a.yaml", file)]);
        assert_eq!(loaded.errors, [], "{question}");
        let text = explain(&loaded.rules, domain, &[entries(asked).unwrap()], &[]);
        assert_eq!(text.split_once('\n').unwrap().1, told, "{question}");
    }
    // envoy #21465, with the name of Envoy's virtual host as the domain.
    let file = "domain: mydomain.com\ndescriptors: [{key: remote_address, rate_limit: {unlimited: true}}]\n";
    let loaded = load_files(&[("a.yaml", file)]);
    let told =
        "the domain 'mydomain.com:80' is unknown, so each request passes; did you mean 'mydomain.com'?\n";
    assert_eq!(explain(&loaded.rules, "mydomain.com:80", &[], &[]), told);
}
