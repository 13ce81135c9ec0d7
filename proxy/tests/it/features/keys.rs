//! Keys of several parts, and several limits of one prefix.

use crate::support::{Folder, Http2, Message, Proxy, Reloaded};

const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

/// Asks once from an address.
fn ask(proxy: &Proxy, from: [u8; 4], path: &str, headers: &str) -> Message {
    proxy.connect_from(from).get_with(path, headers)
}

fn statuses<const N: usize>(proxy: &Proxy, asked: [([u8; 4], &str); N]) -> [u16; N] {
    asked.map(|(from, headers)| ask(proxy, from, "/", headers).status)
}

#[test]
fn parts_of_a_key_are_one_key_together() {
    let proxy = Proxy::start("--limit 1/h --key peer --key header:x-key");
    let (a, b) = ("X-Key: a\r\n", "X-Key: b\r\n");
    let asked = [(HERE, a), (HERE, b), (HERE, a), (ELSEWHERE, a), (ELSEWHERE, a)];
    assert_eq!(statuses(&proxy, asked), [200, 200, 429, 200, 429]);
    // Without the header, and with two of it, the part is the address.
    let asked = [(HERE, ""), (HERE, "X-Key: c\r\nX-Key: d\r\n"), (ELSEWHERE, "")];
    assert_eq!(statuses(&proxy, asked), [200, 429, 200]);
    // Nor is a value an address.
    let asked = [(HERE, "X-Key: 127.0.0.1\r\n"), (HERE, "X-Key: 127.0.0.1;\r\n")];
    assert_eq!(statuses(&proxy, asked), [200, 200]);
}

/// Neither a separator in a value nor a long value hides the parts behind it.
#[test]
fn no_two_lists_of_parts_are_alike() {
    let proxy = Proxy::start("--limit 1/h --key header:a --key header:b");
    let long = "x".repeat(5_000);
    for [a, b] in
        [["x;y", "z"], ["x", "y;z"], ["x", "y"], ["y", "x"], [&long, "1"], [&long, "2"], ["1", &long]]
    {
        let headers = format!("A: {a}\r\nB: {b}\r\n");
        assert_eq!(statuses(&proxy, [(HERE, &headers), (ELSEWHERE, &headers)]), [200, 429], "{a:.9} {b:.9}");
    }
}

#[test]
fn a_cookie_is_a_key_in_each_of_its_forms() {
    let proxy = Proxy::start("--limit 1/h --key cookie:session");
    let asked = [
        (HERE, "Cookie: a=1; session=x; b=2\r\n"),
        (ELSEWHERE, "Cookie: session=x\r\n"),
        (HERE, "Cookie: sessions=x; session=y\r\n"),
        (HERE, "Cookie: a=1\r\nCookie: session=y\r\n"),
    ];
    assert_eq!(statuses(&proxy, asked), [200, 429, 200, 429]);
    // HTTP/2 may send each cookie as a field of its own.
    let reply = Http2::connect(proxy.address).get_with("/", &[("cookie", "a=1"), ("cookie", "session=x")]);
    assert_eq!(reply.status, 429);
    // Each spelling that a server takes for `x` or for `y`.
    let asked = [
        (HERE, "Cookie: session=   x\r\n"),
        (HERE, "Cookie: session =\"x\"\r\n"),
        (HERE, "Cookie: session=%78\r\nCookie: \r\n"),
        (HERE, "Cookie: session=y; session=\r\n"),
    ];
    assert_eq!(statuses(&proxy, asked), [429; 4]);
    // A client without it, or with two, is its address.
    let asked =
        [(HERE, ""), (HERE, "Cookie: session=v; session=w\r\n"), (ELSEWHERE, "Cookie: a=session=1\r\n")];
    assert_eq!(statuses(&proxy, asked), [200, 429, 200]);
}

/// HTTP/2 has no spaces around a value (RFC 9113, 8.2.1), and an upstream of HTTP/1.1 trims them.
#[test]
fn spaces_and_empty_lines_make_no_other_key() {
    let proxy = Proxy::start("--limit 1/h --key header:x-key");
    let connection = Http2::connect(proxy.address);
    let second = |values: &[&str]| {
        let headers: Vec<_> = values.iter().map(|value| ("x-key", *value)).collect();
        connection.get_with("/", &headers).status
    };
    assert_eq!(second(&["k1"]), 200);
    for values in [&[" k1 "][..], &["k1  "], &["\tk1"], &["k1", ""], &["k1", "k1"]] {
        assert_eq!(second(values), 429, "{values:?}");
    }
    let asked = [
        (ELSEWHERE, "X-Key:    k1  \r\n"),
        (ELSEWHERE, "X-Key: k1\r\nX-Key:\r\n"),
        // Neither is a value.
        (HERE, "X-Key:\r\n"),
        (HERE, "X-Key:\r\nX-Key: \t\r\n"),
        (HERE, ""),
    ];
    assert_eq!(statuses(&proxy, asked), [429, 429, 200, 429, 429]);
    let proxy = Proxy::start("--limit 1/h --key header:authorization");
    let asked = ["Bearer k1", "bearer k1", "Bearer    k1"].map(|value| format!("Authorization: {value}\r\n"));
    assert_eq!(asked.map(|header| ask(&proxy, HERE, "/", &header).status), [200, 429, 429]);
}

#[test]
fn made_up_methods_are_one_method() {
    let proxy = Proxy::start("--limit 1/h --key peer --key method");
    let mut client = proxy.connect();
    let mut ask =
        |method| client.send(&format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).status;
    let methods = ["GET", "GET", "POST", "DELETE", "MADE", "UP"];
    assert_eq!(methods.map(&mut ask), [200, 429, 200, 200, 200, 429]);
}

/// Two limits of one prefix: of each address, and of each value of a header.
fn two(address: &str, key: &str, more: &str) -> String {
    format!(
        "{more}\n[[route]]\nname = \"address\"\nprefix = \"/a\"\nlimit = \"{address}\"\n\
         [[route]]\nname = \"key\"\nprefix = \"/a\"\nlimit = \"{key}\"\nkey = \"header:x-key\"\n"
    )
}

/// A refusal by one limit takes no token of the other.
#[test]
fn the_limits_of_one_prefix_grant_together() {
    let proxy = Reloaded::start(&two("3/h", "2/h", ""));
    let ask = |from, key| {
        let reply = ask(&proxy, from, "/a/b", &format!("X-Key: {key}\r\n"));
        let policy = reply.header("ratelimit").unwrap_or_default().to_owned();
        (reply.status, policy.split(';').next().unwrap_or_default().trim_matches('"').to_owned())
    };
    let refused = |name: &str| (429, name.to_owned());
    assert_eq!([0; 2].map(|_| ask(HERE, "k").0), [200; 2]);
    assert_eq!(ask(HERE, "k"), refused("key"));
    // That refusal has left the last token of the address.
    assert_eq!(ask(HERE, "m").0, 200);
    assert_eq!(ask(HERE, "n"), refused("address"));
    // And that one both tokens of the key.
    assert_eq!([0; 2].map(|_| ask(ELSEWHERE, "n").0), [200; 2]);
    assert_eq!(ask(ELSEWHERE, "n"), refused("key"));
    assert_eq!([proxy.decided("address", "refused"), proxy.decided("key", "refused")], [1, 2]);
    let keys =
        ["key", "address"].map(|policy| proxy.metric(&format!("tollgate_keys{{policy=\"{policy}\"}}")));
    assert_eq!(keys, [3, 2]);
    // A path that may be one of them is under both.
    let elsewhere = proxy.connect_from(ELSEWHERE).get_with("/x/../a", "X-Key: n\r\n");
    assert_eq!(elsewhere.status, 429);
    // A reload keeps the tokens of both, and the counts of limits that stay.
    assert!(
        proxy.read(&two("3/h", "3/h", "")).contains(&"limit key: 3/h burst 3, tokens are kept".to_owned())
    );
    assert_eq!([ask(HERE, "o"), ask(ELSEWHERE, "n")], [refused("address"), refused("key")]);
    assert_eq!(proxy.decided("key", "refused"), 4);
    // One of them goes, and the other holds.
    let text = "remove_routes = [\"address\"]\n[[route]]\nname = \"key\"\nprefix = \"/a\"\nlimit = \"3/h\"\n";
    assert!(proxy.read(text).contains(&"limit address: gone".to_owned()));
    assert_eq!(ask(HERE, "fresh").0, 200);
    assert_eq!(ask(HERE, "k"), refused("key"));
    // In shadow mode both count, and neither refuses.
    proxy.read(&two("1/h", "1/h", "shadow = true"));
    assert_eq!([0; 4].map(|_| ask(HERE, "k").0), [200; 4]);
    proxy.read(&two("1/h", "1/h", "shadow = false\n[exempt]\nmethods = [\"GET\"]"));
    assert_eq!([0; 4].map(|_| ask(HERE, "k").0), [200; 4]);
}

/// A window beside a quota, with a cost, in tables of a number of keys.
#[test]
fn limits_of_two_kinds_grant_together() {
    let route = |name: &str, limit: &str, key: &str| {
        format!("[[route]]\nname = \"{name}\"\nprefix = \"/a\"\nlimit = \"{limit}\"\ncost = 2\nkey = {key}\n")
    };
    let (window, quota) = ("\"peer\"", "[\"method\", \"cookie:id\"]");
    let text = [
        "[bounds]\nkeys_per_limit = 100\n",
        &route("window", "8/h sliding", window),
        &route("quota", "4/h", quota),
    ];
    let options = "--access-log --admin 127.0.0.1:0";
    let proxy = Reloaded::in_folder(Folder::new(), &text.concat(), options);
    let status = |id: &str| ask(&proxy, HERE, "/a", &format!("Cookie: id={id}\r\n")).status;
    assert_eq!(["k", "k", "k", "l", "m", "n"].map(status), [200, 200, 429, 200, 200, 429]);
    for status in [200, 200, 429, 200, 200, 429] {
        let line = proxy.error();
        assert!(line.contains(&format!(" status={status} ")), "{line}");
    }
    let event = proxy.event().to_string();
    for part in [
        "\"name\":\"window\"",
        "\"name\":\"quota\"",
        "\"limit\":\"quota\"",
        "\"key\":\"#",
        "\"key\":\"127.0.0.1\"",
    ] {
        assert!(event.contains(part), "{part} in {event}");
    }
    // Another kind of one of them carries its tokens over, and leaves the other as it is.
    let text = [&route("window", "8/h", window), &*route("quota", "4/h", quota)];
    let lines = proxy.read(&text.concat());
    let carried = "limit window: 8/h burst 8, tokens are carried over";
    assert!(lines.iter().any(|line| line.starts_with(carried)), "{lines:?}");
    assert_eq!(["k", "o"].map(status), [429, 429]);
}

/// All clients of such a proxy are one, and its operator sees refusals alone.
#[test]
fn a_proxy_that_is_not_trusted_is_said_once() {
    let of_client = "X-Forwarded-For: 192.0.2.1\r\n";
    for (options, is_said) in [("", true), ("--trust-proxy 127.0.0.1", false)] {
        let proxy = Proxy::start(&format!("--limit 9/h --access-log {options}"));
        assert_eq!(statuses(&proxy, [(HERE, ""), (HERE, of_client), (HERE, of_client)]), [200; 3]);
        let lines = [0; 3].map(|_| proxy.error());
        let said = lines.iter().filter(|line| line.contains("127.0.0.1") && line.contains("trust_proxy"));
        assert_eq!(said.count(), usize::from(is_said), "{lines:?}");
    }
}
