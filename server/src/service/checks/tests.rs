use std::net::IpAddr;

use hyper::HeaderMap;

use super::super::messages::{Code, CurrentLimit, DescriptorStatus, RateLimitResponse, WholeSeconds};
use super::Check;

const EDGE: &str = r#"
domain = "edge"
from = ["127.0.0.1", "10.0.0.0/8"]
client = "X-Real-IP"
descriptors = [
  { ip = "{client}" },
  { path = "{path}", method = "{method}" },
  { api_key = "key-{header:x-api-key}", host = "{host}" },
]
"#;

fn check(text: &str) -> Result<Check, String> {
    let text = format!("[check.edge]\n{text}");
    let profiles = Check::all(&text).map_err(|(at, what)| format!("{what} at {:?}", &text[at]));
    Ok(profiles?.remove("edge").expect("its table"))
}

/// The descriptors as text, for a request to the check that nginx sends.
fn descriptors(check: &Check, headers: &[(&'static str, &str)]) -> Vec<String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().expect("a value"));
    }
    told(check, ("GET", None), &map)
}

fn told(check: &Check, own: (&str, Option<&str>), headers: &HeaderMap) -> Vec<String> {
    let request = check.request(IpAddr::from([127, 0, 0, 1]), own, headers);
    assert_eq!(request.domain, "edge");
    let entries = |entries: &[super::DescriptorEntry]| {
        entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect::<Vec<_>>().join(",")
    };
    request.descriptors.iter().map(|descriptor| entries(&descriptor.entries)).collect()
}

#[test]
fn a_request_is_read_from_the_headers_of_each_proxy() {
    let check = check(EDGE).expect("it is right");
    let nginx = [("x-original-uri", "/login?a=b"), ("x-original-method", "POST"), ("x-real-ip", "192.0.2.7")];
    assert_eq!(descriptors(&check, &nginx), ["ip=192.0.2.7", "path=/login,method=POST"]);
    let traefik = [
        ("x-forwarded-uri", "/a"),
        ("x-forwarded-method", "PUT"),
        ("x-forwarded-host", "h.example"),
        ("x-api-key", "k"),
    ];
    let wanted = ["ip=127.0.0.1", "path=/a,method=PUT", "api_key=key-k,host=h.example"];
    assert_eq!(descriptors(&check, &traefik), wanted);
    assert_eq!(descriptors(&check, &[]), ["ip=127.0.0.1", "path=/,method=GET"]);
}

#[test]
fn a_header_of_a_client_adds_to_the_question_and_hides_nothing() {
    let check = check(EDGE).expect("it is right");
    let both = [
        ("x-forwarded-uri", "/login"),
        ("x-forwarded-method", "POST"),
        ("x-original-uri", "/free"),
        ("x-original-method", "GET"),
    ];
    let wanted = ["ip=127.0.0.1", "path=/free,method=GET", "path=/login,method=POST"];
    assert_eq!(descriptors(&check, &both), wanted);
    // Envoy tells the target in the path of the check.
    let mut headers = HeaderMap::new();
    headers.insert("x-original-uri", "/free".parse().expect("a value"));
    let wanted = ["ip=127.0.0.1", "path=/login,method=PUT"];
    assert_eq!(told(&check, ("PUT", Some("/login")), &headers), wanted);
    // nginx passes bytes beyond ASCII as they are.
    let value = hyper::header::HeaderValue::from_bytes(b"/login?\xff").expect("a value");
    headers.insert("x-original-uri", value);
    let wanted = ["ip=127.0.0.1", "path=/login,method=GET"];
    assert_eq!(told(&check, ("GET", None), &headers), wanted);
}

#[test]
fn a_path_has_one_reading_and_is_asked_for_as_sent_where_servers_differ() {
    let check =
        check("domain='edge'\nfrom=[]\ndescriptors=[{p='{path}'}, {m='{method}'}]").expect("it is right");
    for (sent, wanted) in [
        ("/login", &["p=/login", "m=GET"][..]),
        ("http://h/login?x", &["p=/login", "m=GET"]),
        ("/%6cogin", &["p=/login", "p=/%6cogin", "m=GET"]),
        ("//a/../login", &["p=/login", "p=//a/../login", "m=GET"]),
        ("/a%2f..%2flogin", &["p=/login", "p=/a%2f..%2flogin", "m=GET"]),
        ("/login;x=1/", &["p=/login/", "p=/login;x=1/", "m=GET"]),
        ("/a%20b", &["p=/a b", "m=GET"]),
        ("/LOGIN", &["p=/LOGIN", "m=GET"]),
        ("", &["p=", "m=GET"]),
    ] {
        assert_eq!(descriptors(&check, &[("x-original-uri", sent)]), wanted, "{sent}");
    }
    let text = "domain='edge'\nfrom=[]\ncase_sensitive=false\ndescriptors=[{p='{path}'}]";
    let check = super::tests::check(text).expect("it is right");
    assert_eq!(descriptors(&check, &[("x-original-uri", "/LOGIN")]), ["p=/login"]);
}

/// Each value has a count of its own, whatever its length and its bytes.
#[test]
fn a_value_is_asked_for_as_a_whole_and_by_each_byte() {
    let check = check(EDGE).expect("it is right");
    let long = "/\u{e9}".repeat(4_000);
    let found = descriptors(&check, &[("x-original-uri", &long)]);
    assert!(found.contains(&format!("path={long},method=GET")));
    let of = |value: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", hyper::header::HeaderValue::from_bytes(value).expect("a value"));
        told(&check, ("GET", Some("/a%ff")), &headers)
    };
    let wanted = ["path=/a\u{10f7ff},method=GET", "path=/a%ff,method=GET", "api_key=key-a\u{10f7ff},host="];
    assert_eq!(of(b"a\xff")[1..], wanted);
    assert_ne!(of(b"a\xff"), of(b"a\xfe"));
}

#[test]
fn only_the_networks_of_the_profile_may_ask() {
    let check = check(EDGE).expect("it is right");
    for (address, may) in
        [("127.0.0.1", true), ("::ffff:10.1.2.3", true), ("127.0.0.2", false), ("::1", false)]
    {
        assert_eq!(check.may_ask(address.parse().expect("an address")), may, "{address}");
    }
}

#[test]
fn an_answer_tells_the_limit_that_decides() {
    let check = check(EDGE).expect("it is right");
    let status = |code: Code, left, seconds, name: &str| DescriptorStatus {
        code: code as i32,
        current_limit: Some(CurrentLimit { requests_per_unit: 9, unit: 2, name: name.to_owned() }),
        limit_remaining: left,
        duration_until_reset: Some(WholeSeconds { seconds }),
    };
    let answer = |overall: Code, statuses: Vec<DescriptorStatus>| {
        let response =
            RateLimitResponse { overall_code: overall as i32, statuses, ..RateLimitResponse::default() };
        let (status, headers) = check.answer(&response);
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}"));
        (status.as_u16(), headers.collect::<Vec<_>>())
    };
    let few = vec![status(Code::Ok, 5, 60, "a"), status(Code::Ok, 2, 30, ""), status(Code::Ok, 2, 10, "c")];
    let wanted = ["ratelimit: \"edge\";r=2;t=30", "ratelimit-policy: \"edge\";q=9;w=60"].map(str::to_owned);
    assert_eq!(answer(Code::Ok, few), (200, wanted.to_vec()));
    let over = vec![
        status(Code::OverLimit, 0, 7, "a\"\n"),
        status(Code::OverLimit, 0, 3, "b"),
        status(Code::Ok, 0, 99, "c"),
    ];
    let wanted =
        ["ratelimit: \"a\";r=0;t=7", "ratelimit-policy: \"a\";q=9;w=60", "retry-after: 7"].map(str::to_owned);
    assert_eq!(answer(Code::OverLimit, over), (429, wanted.to_vec()));
    assert_eq!(answer(Code::Ok, vec![]), (200, vec![]));
}

#[test]
fn a_mistake_names_its_value_and_the_remedy() {
    for (change, error) in [
        (("domain", "domian"), "`domian`"),
        (("from = [\"127.0.0.1\", \"10.0.0.0/8\"]", ""), "missing field `from`"),
        (("10.0.0.0/8", "10.0.0.0/33"), "expected a network such as 10.0.0.0/8, not \"10.0.0.0/33\""),
        (("X-Real-IP", "a b"), "\"a b\" is no name of a header"),
        (("X-Real-IP", "xff"), "needs `trust_proxy`"),
        (("{method}", "{methd}"), "`methd`"),
        (("{method}", "{method"), "without a '}'"),
        (("{header:x-api-key}", "{header:}"), "no name of a header"),
        (("{ ip = \"{client}\" }", "{}"), "each of them an entry"),
        (("{ ip = \"{client}\" }", "3"), "invalid type: integer `3`, expected a map"),
        (("domain = \"edge\"", "domain = \"edge\"\nrefuse = 500"), "expected 429 or 403"),
        (("domain = \"edge\"", "domain = 3"), "invalid type: integer `3`, expected a string"),
    ] {
        assert!(EDGE.contains(change.0));
        let found = check(&EDGE.replacen(change.0, change.1, 1)).expect_err(error);
        assert!(found.contains(error), "{found}");
    }
}
