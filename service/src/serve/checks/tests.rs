use std::net::IpAddr;

use hyper::HeaderMap;

use super::super::messages::{
    Code, CurrentLimit, DescriptorStatus, RateLimitRequest, RateLimitResponse, WholeSeconds,
};
use super::Check;
use super::notes::Note;
use crate::rules::load::{LoadOptions, load};

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
    entries_of(check, ("GET", None), &map)
}

fn entries_of(check: &Check, own: (&str, Option<&str>), headers: &HeaderMap) -> Vec<String> {
    let request = check.request(IpAddr::from([127, 0, 0, 1]), own, headers, None);
    assert_eq!(request.domain, "edge");
    texts(&request)
}

fn texts(request: &RateLimitRequest) -> Vec<String> {
    let entries = |entries: &[super::DescriptorEntry]| {
        entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect::<Vec<_>>().join(",")
    };
    request.descriptors.iter().map(|descriptor| entries(&descriptor.entries)).collect()
}

#[test]
fn a_request_is_read_from_the_headers_of_each_proxy() {
    let check = check(EDGE).expect("it is right");
    let nginx = [("x-original-uri", "/login?a=b"), ("x-original-method", "POST"), ("x-real-ip", "192.0.2.7")];
    let missing = "api_key=key- 192.0.2.7,host=";
    assert_eq!(descriptors(&check, &nginx), ["ip=192.0.2.7", "path=/login,method=POST", missing]);
    let traefik = [
        ("x-forwarded-uri", "/a"),
        ("x-forwarded-method", "PUT"),
        ("x-forwarded-host", "h.example"),
        ("x-api-key", "k"),
    ];
    let wanted = ["ip=127.0.0.1", "path=/a,method=PUT", "api_key=key-k,host=h.example"];
    assert_eq!(descriptors(&check, &traefik), wanted);
    let missing = "api_key=key- 127.0.0.1,host=";
    assert_eq!(descriptors(&check, &[]), ["ip=127.0.0.1", "path=/,method=GET", missing]);
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
    let missing = "api_key=key- 127.0.0.1,host=";
    let wanted = ["ip=127.0.0.1", "path=/free,method=GET", missing, "path=/login,method=POST"];
    assert_eq!(descriptors(&check, &both), wanted);
    // Envoy tells the target in the path of the check.
    let mut headers = HeaderMap::new();
    headers.insert("x-original-uri", "/free".parse().expect("a value"));
    let wanted = ["ip=127.0.0.1", "path=/login,method=PUT", missing];
    assert_eq!(entries_of(&check, ("PUT", Some("/login")), &headers), wanted);
    // nginx passes bytes beyond ASCII as they are.
    let value = hyper::header::HeaderValue::from_bytes(b"/login?\xff").expect("a value");
    headers.insert("x-original-uri", value);
    let wanted = ["ip=127.0.0.1", "path=/login,method=GET", missing];
    assert_eq!(entries_of(&check, ("GET", None), &headers), wanted);
}

#[test]
fn a_path_is_asked_for_by_each_of_its_readings() {
    let text = "domain='edge'\nfrom=[]\ndescriptors=[{p='{path}'}, {m='{method}'}]";
    let check = super::tests::check(text).expect("it is right");
    for (sent, wanted) in [
        ("/login", &["/login"][..]),
        ("http://h/login?x", &["/login"]),
        ("/%6cogin", &["/%6cogin", "/login"]),
        ("/login/", &["/login/", "/login"]),
        ("/login//", &["/login//", "/login", "/login/"]),
        ("//a/../login", &["//a/../login", "/../login", "/a/../login", "//login", "/login"]),
        ("/login;x=1/", &["/login;x=1/", "/login;x=1", "/login/", "/login"]),
        ("/a%20b", &["/a b"]),
        ("/LOGIN", &["/LOGIN", "/login"]),
        ("/", &["/"]),
        ("", &["/"]),
        ("*", &["*"]),
        ("http://h", &["/"]),
        ("http://h?/login", &["/"]),
    ] {
        let found = descriptors(&check, &[("x-original-uri", sent)]);
        let wanted: Vec<_> =
            wanted.iter().map(|path| format!("p={path}")).chain(["m=GET".to_owned()]).collect();
        assert_eq!(found, wanted, "{sent}");
    }
    let text = "domain='edge'\nfrom=[]\ncase_sensitive=true\ndescriptors=[{p='{path}'}]";
    let check = super::tests::check(text).expect("it is right");
    assert_eq!(descriptors(&check, &[("x-original-uri", "/LOGIN")]), ["p=/LOGIN"]);
}

/// Checks the list on which the proxy and all recipes are tried.
#[test]
fn each_spelling_that_servers_accept_is_asked_for_as_the_path() {
    let check = check("domain='edge'\nfrom=[]\ndescriptors=[{p='{path}'}]").expect("it is right");
    for line in tollgate_common::paths::ACCEPTED.lines() {
        let (_, target) = line.split_once(' ').expect("a server and a target");
        let mut headers = HeaderMap::new();
        headers.insert("x-original-uri", target.as_bytes().try_into().expect("a value"));
        let found = entries_of(&check, ("GET", None), &headers);
        assert!(found.iter().any(|text| text == "p=/login"), "{line}: {found:?}");
        // Envoy tells the target in the path of the check.
        assert_eq!(entries_of(&check, ("GET", Some(target)), &HeaderMap::new()), found, "{line}");
    }
}

#[test]
fn a_path_with_too_many_readings_is_under_every_rule() {
    let text = "domain='edge'\nfrom=[]\ndescriptors=[{p='{path}', c='{client}'}, {m='{method} {path}'}, {c='{client}'}]";
    let check = super::tests::check(text).expect("it is right");
    let rules = "domain: edge\ndescriptors:\n- {key: p, value: /b, rate_limit: {limit: 1/s}}\n\
                 - {key: m, value: POST /a*, rate_limit: {limit: 1/s}}\n\
                 - {key: x, descriptors: [{key: p, value: /a, rate_limit: {limit: 1/s}}]}\n";
    let rules = load(&[(String::new(), rules.to_owned())], LoadOptions::default()).expect("they are right");
    for long in ["/a;b%3bc//%2f/d\\%5c/.;/%2e/x/%2e%2e;y//..".to_owned(), format!("/{}", "%2f".repeat(1_000))]
    {
        let target = ("GET", Some(&*long));
        let request = check.request([127, 0, 0, 1].into(), target, &HeaderMap::new(), rules.domain("edge"));
        let wanted = [
            "p=?,c=127.0.0.1",
            "p=/a,c=127.0.0.1",
            "p=/b,c=127.0.0.1",
            "m=GET ?",
            "m=POST /a",
            "c=127.0.0.1",
        ];
        assert_eq!(texts(&request), wanted);
    }
    assert!(check.warnings()[0].contains("client = \"peer\""), "{:?}", check.warnings());
}

/// A request is one hit of each count, however its path is read.
#[test]
fn a_count_that_readings_share_is_asked_for_once() {
    let text = "domain='edge'\nfrom=[]\ndescriptors=[{p='{path}', c='{client}'}, {m='{method} {path}'}]";
    let check = super::tests::check(text).expect("it is right");
    let rules = "domain: edge\ndescriptors:\n\
                 - {key: p, value: /api/*, share_threshold: true, descriptors: [{key: c, rate_limit: {limit: 1/s}}]}\n\
                 - {key: p, value: /own/*, descriptors: [{key: c, rate_limit: {limit: 1/s}}]}\n\
                 - {key: p, value: /api/x, descriptors: [{key: c, rate_limit: {limit: 1/s}}]}\n\
                 - {key: m, value: 'GET /*', share_threshold: true, rate_limit: {limit: 1/s}}\n\
                 - {key: m, value: '*', share_threshold: true, rate_limit: {limit: 1/s}}\n";
    let rules = load(&[(String::new(), rules.to_owned())], LoadOptions::default()).expect("they are right");
    let many = &*format!("/{}", "%2f".repeat(1_000));
    for (method, target, wanted) in [
        ("GET", "/api/y/", &["p=/api/y/", "m=GET /api/y/"][..]),
        // Another limit has one of the readings.
        ("GET", "/api/x/", &["p=/api/x/", "p=/api/x", "m=GET /api/x/"]),
        ("GET", "/own/y/", &["p=/own/y/", "p=/own/y", "m=GET /own/y/"]),
        ("PURGE", "/b", &["p=/b", "m=other /b"]),
        ("GET", many, &["p=?", "p=/api/", "p=/api/x", "p=/own/", "m=GET ?", "m=GET /"]),
    ] {
        let mut headers = HeaderMap::new();
        for name in ["x-original-uri", "x-forwarded-uri"] {
            headers.insert(name, target.parse().expect("a value"));
        }
        let request = check.request([127, 0, 0, 1].into(), (method, None), &headers, rules.domain("edge"));
        let found = texts(&request);
        let found: Vec<_> = found.iter().map(|text| text.trim_end_matches(",c=127.0.0.1")).collect();
        assert_eq!(found, wanted, "{method} {target:.20}");
    }
}

#[test]
fn a_method_that_is_made_up_counts_with_all_others() {
    let check = check("domain='edge'\nfrom=[]\ndescriptors=[{p='{method} {path}'}]").expect("it is right");
    for (method, wanted) in
        [("GET", &["GET"][..]), ("PURGE", &["other", "PURGE"]), ("get", &["other", "get"])]
    {
        let found = descriptors(&check, &[("x-original-uri", "/a"), ("x-original-method", method)]);
        assert_eq!(found, wanted.iter().map(|method| format!("p={method} /a")).collect::<Vec<_>>());
    }
}

#[test]
fn a_host_is_one_however_it_is_spelled() {
    let check = check("domain='edge'\nfrom=[]\ndescriptors=[{h='{host}'}]").expect("it is right");
    for (host, wanted) in [
        ("A.example:8000", "a.example"),
        ("a.example.", "a.example"),
        ("[2001:DB8::1]:1", "[2001:db8::1]"),
        ("", ""),
    ] {
        assert_eq!(descriptors(&check, &[("host", host)]), [format!("h={wanted}")], "{host}");
    }
}

/// A client can leave each of them out, send it twice, or write it in another way.
#[test]
fn a_header_that_is_missing_is_the_address_of_the_client_and_is_said_once() {
    let check = check("domain='edge'\nfrom=[]\nclient='X-Real-IP'\ndescriptors=[{k='{header:x-api-key}'}]");
    let check = check.expect("it is right");
    assert!(check.warnings()[0].contains("each descriptor has a header"), "{:?}", check.warnings());
    let name = hyper::header::HeaderName::from_static("x-api-key");
    assert!(!check.notes.has(Note::NoHeader(&name)));
    for (headers, wanted) in [
        (&["k1"][..], "k1"),
        (&[" k1\t"], "k1"),
        (&["k1", ""], "k1"),
        (&["k1", "k1"], "k1"),
        (&["192.0.2.7"], "192.0.2.7"),
        (&[], " 192.0.2.7"),
        (&[""], " 192.0.2.7"),
        (&["k1", "k2"], " 192.0.2.7"),
    ] {
        let mut all = vec![("x-real-ip", "192.0.2.7")];
        all.extend(headers.iter().map(|value| ("x-api-key", *value)));
        assert_eq!(descriptors(&check, &all), [format!("k={wanted}")], "{headers:?}");
    }
    assert!(check.notes.has(Note::NoHeader(&name)));
}

#[test]
fn clients_that_are_one_are_said() {
    for (client, headers, note) in [
        ("", &[("x-forwarded-for", "192.0.2.1")][..], Some(Note::PeerIsClient)),
        ("client='peer'", &[("x-real-ip", "192.0.2.1")], Some(Note::PeerIsClient)),
        ("client='peer'", &[], None),
        ("client='X-Real-IP'", &[("x-real-ip", "192.0.2.1")], None),
        ("client='X-Real-IP'", &[("x-real-ip", "127.0.0.1")], None),
        ("client='X-Real-IP'", &[("x-real-ip", "unknown")], Some(Note::NoAddress)),
        ("client='X-Real-IP'", &[], Some(Note::NoAddress)),
        ("client='xff'\ntrust_proxy=['127.0.0.1']", &[("x-forwarded-for", "192.0.2.1")], None),
        ("client='xff'\ntrust_proxy=['127.0.0.1']", &[], Some(Note::NoAddress)),
        (
            "client='xff'\ntrust_proxy=['10.0.0.1']",
            &[("x-forwarded-for", "192.0.2.1")],
            Some(Note::UntrustedPeer),
        ),
    ] {
        let check = check(&format!("domain='edge'\nfrom=[]\n{client}\ndescriptors=[{{ip='{{client}}'}}]"));
        let check = check.expect("it is right");
        descriptors(&check, &[&[("x-original-uri", "/")], headers].concat());
        for each in [Note::NoTarget, Note::PeerIsClient, Note::UntrustedPeer, Note::NoAddress] {
            let is_wanted = note.is_some_and(|note| note.sentence() == each.sentence());
            assert_eq!(check.notes.has(each), is_wanted, "{client} {headers:?}: {}", each.sentence());
        }
    }
}

/// Azure's gateway writes the port of the connection.
#[test]
fn an_address_is_one_client_however_it_is_written() {
    let of = |client: &str, prefix: &str, name, value: &str| {
        let text = format!(
            "domain='edge'\nfrom=[]\nclient='{client}'\n{prefix}\ntrust_proxy=['127.0.0.1']\n\
             descriptors=[{{ip='{{client}}'}}, {{net='{{client/48}}'}}]"
        );
        descriptors(&check(&text).expect("it is right"), &[(name, value)]).join(" ")
    };
    for (value, wanted) in [
        ("203.0.113.7:50123", "ip=203.0.113.7 net=203.0.113.7"),
        ("203.0.113.7", "ip=203.0.113.7 net=203.0.113.7"),
        ("::ffff:203.0.113.7", "ip=203.0.113.7 net=203.0.113.7"),
        ("[2001:db8:1:2::1]:5678", "ip=2001:db8:1:2:: net=2001:db8:1::"),
        ("2001:db8:1:2:ffff::", "ip=2001:db8:1:2:: net=2001:db8:1::"),
        ("unknown", "ip=127.0.0.1 net=127.0.0.1"),
    ] {
        assert_eq!(of("X-Real-IP", "", "x-real-ip", value), wanted, "{value}");
        assert_eq!(of("xff", "", "x-forwarded-for", value), wanted, "{value}");
    }
    let wanted = "ip=2001:db8:1:200:: net=2001:db8:1::";
    assert_eq!(of("X-Real-IP", "ipv6_prefix=56", "x-real-ip", "2001:db8:1:2ff::1"), wanted);
}

/// Each value has a count of its own, whatever its length and its bytes.
#[test]
fn a_value_is_asked_for_as_a_whole_and_by_each_byte() {
    let check = check("domain='edge'\nfrom=[]\ndescriptors=[{k='{header:x-api-key}'}]").expect("it is right");
    let of = |value: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", hyper::header::HeaderValue::from_bytes(value).expect("a value"));
        entries_of(&check, ("GET", Some("/")), &headers)
    };
    assert_eq!(of(b"a\xff"), ["k=a\u{10f7ff}"]);
    assert_ne!(of(b"a\xff"), of(b"a\xfe"));
    let long = "\u{e9}".repeat(30_000);
    assert_eq!(of(long.as_bytes()), [format!("k={long}")]);
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
    let wanted = [
        "ratelimit: \"a\";r=0;t=7",
        "ratelimit-policy: \"a\";q=9;w=60",
        "retry-after: 7",
        "cache-control: no-store",
    ]
    .map(str::to_owned);
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
        (("domain = \"edge\"", "domain = \"\""), "a `domain` of 1 to 4096 bytes, not 0"),
        (
            ("domain = \"edge\"", "domain = \"edge\"\nipv6_prefix = 65"),
            "65 bits is out of the bounds of 32 and 64",
        ),
        (("{client}", "{client/31}"), "31 bits is out of the bounds"),
        (("{client}", "{client/x}"), "`client/x`"),
        (("domain = \"edge\"", "domain = 3"), "invalid type: integer `3`, expected a string"),
    ] {
        assert!(EDGE.contains(change.0));
        let found = check(&EDGE.replacen(change.0, change.1, 1)).expect_err(error);
        assert!(found.contains(error), "{found}");
    }
}
