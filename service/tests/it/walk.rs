//! The walks of spellings and of values, against a limit that is used up.
//!
//! The spellings are those of `spellings/accepted.txt`, which the proxy, the layer and the checks
//! are tried on as well. A request passes if the service behind the proxy answers it, and was asked
//! for one of the spellings. A proxy may refuse it by itself, send its client to another spelling,
//! or make another path of it: Envoy makes `/x/login` of `/x//../login`.

use std::fs;
use std::net::SocketAddr;

use tollgate_testing::wire::{Connection, Message};

use crate::client::Service;
use crate::envoy::{Edge, example};
use tollgate_common::paths::ACCEPTED;

/// The answer to a request. There is none if the connection is closed.
fn answer(to: SocketAddr, target: &str, headers: &[u8]) -> Option<Message> {
    let line = format!("GET {target} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n");
    answer_to(to, &[line.as_bytes(), headers, b"\r\n"].concat())
}

fn answer_to(to: SocketAddr, head: &[u8]) -> Option<Message> {
    let mut connection = Connection::connect_from([127, 0, 0, 1], to);
    // A proxy may close the connection before it has the whole head.
    let _ = connection.try_write(head);
    connection.reply("GET").ok().flatten().map(|(answer, _)| answer)
}

fn status(to: SocketAddr, target: &str, headers: &[u8]) -> u16 {
    answer(to, target, headers).map_or(0, |answer| answer.status)
}

fn use_up(to: SocketAddr) {
    let statuses = [0; 6].map(|_| status(to, "/login", b""));
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

/// Checks that no spelling passes, and that other paths do.
pub(crate) fn spellings(to: SocketAddr) {
    use_up(to);
    let list: Vec<&str> = ACCEPTED.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    let passes = |target: &&&str| {
        let answer = answer(to, target, b"").filter(|answer| answer.status == 200);
        answer.is_some_and(|answer| answer.header("x-target").is_none_or(|seen| list.contains(&seen)))
    };
    let passed: Vec<_> = list.iter().filter(passes).collect();
    assert!(passed.is_empty(), "{} of {}: {passed:?}", passed.len(), list.len());
    for other in ["/", "/loginx", "/xlogin", "/login-x", "/100%25", "/a%20b", "/%256cogins", "/x?/login"] {
        assert_eq!(status(to, other, b""), 200, "{other}");
    }
}

/// Checks that no value of a header, a cookie or a query passes, nor a method, nor a request
/// without a host.
pub(crate) fn values(to: SocketAddr) {
    use_up(to);
    let of_length = |length| vec![b'k'; length];
    // Envoy takes a head of 60 KiB, the service one of 128, and Caddy one of 1 MiB.
    let lengths = [0, 1, 1_000, 4_000, 4_096, 4_097, 8_000, 16_000, 32_000, 60 << 10, 200_000, 900_000];
    let values = (1..=u8::MAX).map(|byte| vec![b'k', byte, b'k']).chain(lengths.map(of_length));
    let mut heads = vec![(String::new(), Vec::new())];
    for value in values {
        for name in ["X-Api-Key", "Cookie", "X-Forwarded-For", "Content-Type"] {
            heads.push((String::new(), [name.as_bytes(), b": ", &value, b"\r\n"].concat()));
        }
        heads.extend(String::from_utf8(value).map(|value| (format!("?{value}"), Vec::new())));
    }
    for lines in [2, 20, 90, 1_000] {
        heads.push((String::new(), b"X-Api-Key: k\r\n".repeat(lines)));
        let different = (0..lines).map(|line| format!("X-Api-Key: k{line}\r\n"));
        heads.push((String::new(), different.collect::<String>().into_bytes()));
    }
    for line in ["POST /login HTTP/1.1", "MADEUP /login HTTP/1.1", "OPTIONS http://edge/login HTTP/1.1"] {
        let head = format!("{line}\r\nHost: edge\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert!(answer_to(to, head.as_bytes()).is_none_or(|answer| answer.status != 200), "{line}");
    }
    for line in ["GET /login HTTP/1.0", "GET http://edge/login HTTP/1.0"] {
        let head = format!("{line}\r\n\r\n");
        assert!(answer_to(to, head.as_bytes()).is_none_or(|answer| answer.status != 200), "{line}");
    }
    let passes =
        |(query, headers): &&(String, Vec<u8>)| status(to, &format!("/login{query}"), headers) == 200;
    let passed: Vec<_> = heads.iter().filter(passes).collect();
    let shown = |(query, headers): &&(String, Vec<u8>)| format!("{query:.20} {:.40}", headers.escape_ascii());
    let first: Vec<_> = passed.iter().take(10).map(shown).collect();
    assert!(passed.is_empty(), "{} of {}: {first:?}", passed.len(), heads.len());
}

/// A proxy tells the target in a header, and Envoy in the path of the check.
#[test]
fn no_spelling_passes_a_check() {
    let checks = example("checks.toml");
    let service = Service::of_the_example(&["--config", checks.to_str().expect("UTF-8")]);
    let to = service.http_address();
    let told = |target: &str| status(to, "/check/edge", format!("X-Original-URI: {target}\r\n").as_bytes());
    assert_eq!([0; 6].map(|_| told("/login")), [200, 200, 200, 200, 200, 429]);
    for (_, target) in ACCEPTED.lines().filter_map(|line| line.split_once(' ')) {
        assert_eq!(told(target), 429, "{target}");
        // Some targets are no request of HTTP.
        let behind = status(to, &format!("/check/envoy{target}"), b"");
        assert!([400, 429].contains(&behind), "{target}: {behind}");
    }
    // A path with too many readings is under every rule.
    for long in ["/a;b%3bc//%2f/d\\%5c/.;/%2e/x/%2e%2e;y//..", &"/%2f".repeat(700)] {
        assert_eq!(told(long), 429, "{long}");
    }
    assert_eq!(told(&"/c%2fd;x".repeat(9)), 200);
}

/// A recipe that is open while the service is away takes each status of 500 for that.
#[test]
fn a_check_of_headers_that_are_missing_is_a_decision() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = "domain: edge\ndescriptors:\n- {key: api_key, rate_limit: {limit: 3/h}}\n";
    let checks = "[check.api]\ndomain = \"edge\"\nfrom = [\"127.0.0.1\"]\nclient = \"X-Real-IP\"\n\
                  descriptors = [{ api_key = \"{header:x-api-key}\" }]\n";
    fs::write(folder.path().join("edge.yaml"), rules).expect("it is written");
    let config = folder.path().join("checks.toml");
    fs::write(&config, checks).expect("it is written");
    let options = ["--config", config.to_str().expect("UTF-8")];
    let service = Service::start(folder.path(), &options, &[]).expect("it starts");
    let ask = |headers: &str| status(service.http_address(), "/check/api", headers.as_bytes());
    for headers in ["X-Api-Key: k\r\n", "", "X-Real-IP: 192.0.2.1\r\n"] {
        assert_eq!([0; 5].map(|_| ask(headers)), [200, 200, 200, 429, 429], "{headers}");
    }
    // An empty one is none, and so are two.
    for headers in ["X-Api-Key:\r\n", "X-Api-Key: a\r\nX-Api-Key: b\r\n"] {
        assert_eq!(ask(headers), 429, "{headers}");
    }
    let line = service.line_with("a request has no value of x-api-key").expect("it is said");
    assert!(line.contains("/check/api") && line.contains("this is said once"), "{line}");
}

mod envoy {
    #[test]
    #[ignore = "needs Envoy: verify/rigs/behind-proxies"]
    fn no_spelling_of_a_path_passes_its_limit() {
        super::spellings(super::Edge::start(|text| text).address);
    }

    /// A client of IPv6 has a network of 64 bits.
    #[test]
    #[ignore = "needs Envoy: verify/rigs/behind-proxies"]
    fn addresses_of_one_network_are_one_client() {
        let edge =
            super::Edge::start(|text| text.replace("use_remote_address: true", "use_remote_address: false"));
        let left = |address: &str| {
            let (_, headers, _) = edge.get("/", &[("x-forwarded-for", address)]);
            headers["x-ratelimit-remaining"].to_str().expect("ASCII").to_owned()
        };
        for (address, wanted) in
            [("2001:db8::1", "599"), ("2001:db8::2", "598"), ("2001:db8:0:1::1", "599"), ("192.0.2.1", "599")]
        {
            assert_eq!(left(address), wanted, "{address}");
        }
    }
}
