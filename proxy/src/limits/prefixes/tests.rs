use std::collections::HashSet;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::config::exempt::has;
use tollgate_common::paths::{MAX_BYTES, MAX_READINGS, has_one_reading};

fn route(prefix: &str, quota: &str, cost: u64) -> Route {
    let rule = quota.parse().expect("a quota");
    let (name, prefix) = (prefix.to_owned(), prefix.to_owned());
    let priority = tollgate_adaptive::Priority::Critical;
    Route { name, prefix, rule, cost, priority, key: None, ban: None, delay: None }
}

fn prefixes(routes: &[(&str, &str)], default: Option<&str>) -> Prefixes {
    let routes: Vec<Route> = routes.iter().map(|(prefix, quota)| route(prefix, quota, 1)).collect();
    let default = default.map(|quota| quota.parse().expect("a quota"));
    Prefixes::new(&routes, default, false)
}

fn texts(path: &str) -> Option<Vec<Vec<u8>>> {
    let readings = readings(path.as_bytes())?;
    Some(readings.into_iter().map(|reading| reading.path).collect())
}

#[test]
fn every_spelling_is_under_its_route() {
    let tight_first = [("/login", "1/s"), ("/search", "2/s"), ("/a/b", "3/s"), ("/caf\u{e9} x", "4/s")];
    let prefixes = prefixes(&tight_first, Some("100/s"));
    for (path, route) in [
        // A path as it is written.
        ("/login", Some(0)),
        ("/login/", Some(0)),
        ("/login/x", Some(0)),
        ("/logins", None),
        ("/logi", None),
        ("/x/login", None),
        ("/", None),
        ("", None),
        ("*", None),
        // Case.
        ("/LOGIN/", Some(0)),
        ("/Login", Some(0)),
        ("/%4cogin", Some(0)),
        // Escapes.
        ("/%6cogin", Some(0)),
        ("/%6C%6f%67%69%6E", Some(0)),
        ("/%2flogin", Some(0)),
        ("/login%2f", Some(0)),
        ("/login%2Fx", Some(0)),
        ("/login%20", Some(0)),
        ("/%20login%09/x", Some(0)),
        ("/log%20in", None),
        ("/login%20x", None),
        ("/login%", None),
        ("/login%/", None),
        ("/login%2", None),
        ("/login/%zz", Some(0)),
        ("/%256cogin", Some(0)),
        ("/x%252f..%252flogin%253fx", Some(0)),
        ("/%25256cogin", None),
        ("/%+6cogin", None),
        ("/caf%c3%a9%20x", Some(3)),
        ("/caf%C3%A9%20x/y", Some(3)),
        ("/caf\u{e9}%20x", Some(3)),
        ("/cafe%e9%20x", None),
        ("/login/%ff%fe", Some(0)),
        // Dots.
        ("/./login", Some(0)),
        ("/../login", Some(0)),
        ("/x/../login", Some(0)),
        ("/x/y/../../login", Some(0)),
        ("/login/..", Some(0)),
        ("/login/../x", Some(0)),
        ("/x/.../login", None),
        ("/x/%2e%2e/login", Some(0)),
        ("/x/.%2E/login", Some(0)),
        ("/x%2f..%2flogin", Some(0)),
        ("/x/..%2flogin", Some(0)),
        ("/login%2f..%2f..", Some(0)),
        ("/search/x%2f..%2f..", Some(1)),
        ("/search/x%2f..%2f..%2flogin", Some(0)),
        ("/a/c/../b", Some(2)),
        ("/x%2fy/../login", Some(0)),
        ("/x%2fy/%2e%2e/login", Some(0)),
        ("/x/../login%2f..%2fy", Some(0)),
        ("/x/%2e%2e/login%2f..%2fy", Some(0)),
        // Parameters.
        ("/login;x=1", Some(0)),
        ("/login;", Some(0)),
        ("/login;x=1/y", Some(0)),
        ("/login/y;x=1", Some(0)),
        ("/login%3bx", Some(0)),
        ("/%6c%6Fgin%3bx", Some(0)),
        ("/;x/login", Some(0)),
        ("/x/..;/login", Some(0)),
        ("/x/..;y=1/login", Some(0)),
        ("/x/..%3by/login", Some(0)),
        ("/x/.;/..;/login", Some(0)),
        ("/login;x%2fy", Some(0)),
        ("/login;x/../..", Some(0)),
        ("/a;x/b;y", Some(2)),
        ("/x%2fy/..%3b/login", Some(0)),
        // Empty segments.
        ("//login", Some(0)),
        ("/login//", Some(0)),
        ("///login//x", Some(0)),
        ("/a//b", Some(2)),
        ("/a//../login", Some(0)),
        ("/x//../../login", Some(0)),
        ("/.//login", Some(0)),
        ("/a/%2fb", Some(2)),
        ("/x//../login%2f..%2fy", Some(0)),
        ("/x%2f%2f../login", Some(0)),
        ("/x%2f..%2f%2flogin%2f%2f..", Some(0)),
        // An authority.
        ("//x/login", Some(0)),
        ("///x/login", Some(0)),
        ("/\\x/login", Some(0)),
        ("//x\\y/login", Some(0)),
        ("//x/y/%2e%2e/login/../login%2fy", Some(0)),
        ("//x", None),
        ("//", None),
        ("/x//y/login", None),
        // Characters that end a path in other texts.
        ("/login%3Fx", Some(0)),
        ("/login%23", Some(0)),
        ("/login%00.png", Some(0)),
        ("/x/../%6cogin%3f/..", Some(0)),
        ("/x%3f/login", None),
        // Bytes that are not UTF-8.
        ("/login%ff", Some(0)),
        ("/%c3login/%e9", Some(0)),
        ("/x/..%ff/login", Some(0)),
        ("/login%c3%a9", None),
        // Backslashes.
        ("/login\\x", Some(0)),
        ("/login%5cx", Some(0)),
        ("/\\login", Some(0)),
        ("/x\\..\\login", Some(0)),
        ("/x%5c..%5clogin", Some(0)),
        ("/a\\b", Some(2)),
        ("/x\\..\\login%5cx", Some(0)),
        // All of these in one path.
        ("/x%5C..;y=1//.%2F%4C%4fGIN%3Bz", Some(0)),
        ("/x;a\\%2e%2e%3Bb%2f/A;c//%42%5c", Some(2)),
        // Too many readings: the tightest route.
        ("/x;a\\%2e%2e%3Bb%2f%2e/./A;c//%42%5c", Some(0)),
    ] {
        assert_eq!(prefixes.find(path), route, "{path}");
    }
}

#[test]
fn spellings_that_servers_accept_are_under_the_route() {
    let prefixes = prefixes(&[("/login", "2/s"), ("/tighter", "1/s")], Some("100/s"));
    for line in tollgate_common::paths::ACCEPTED.lines() {
        let (server, target) = line.split_once(' ').expect("a server and a target");
        let uri: hyper::Uri = target.parse().expect("a target");
        assert_eq!(prefixes.find(uri.path()), Some(0), "{server} {target}");
    }
}

#[test]
fn case_counts_if_it_is_said() {
    let routes = [route("/login", "1/s", 1), route("/API", "1/s", 1)];
    let prefixes = Prefixes::new(&routes, None, true);
    for (path, route) in [
        ("/login", Some(0)),
        ("/LOGIN", None),
        ("/%6Cogin", Some(0)),
        ("/%4Cogin", None),
        ("/API/x", Some(1)),
        ("/api/x", None),
        ("//Login", None),
    ] {
        assert_eq!(prefixes.find(path), route, "{path}");
    }
}

#[test]
fn a_reading_selects_the_longest_prefix() {
    let prefixes = prefixes(&[("/", "5/s"), ("/a", "1/s"), ("/a/b", "9/s"), ("/a/b/c", "8/s")], Some("1/s"));
    for (path, route) in [
        ("/a/b", 2),
        ("/a/b/c/d", 3),
        ("/a/bc", 1),
        ("/b", 0),
        ("/", 0),
        ("", 0),
        ("*", 0),
        // One reading is `/a/b`, and another is `/a//b`, which is under `/a` alone.
        ("/a//b", 1),
        ("/a/b/../x", 1),
        ("/x/../y", 0),
    ] {
        assert_eq!(prefixes.find(path), Some(route), "{path}");
    }
}

#[test]
fn the_tightest_of_all_readings_wins() {
    // One reading of `/a/../b` is under `/a`, and another under `/b`.
    for (a, a_cost, b, b_cost, tighter) in [
        ("1/s", 1, "2/s", 1, 0),
        ("2/s", 1, "1/s", 1, 1),
        ("2/s", 1, "60/m", 1, 1),
        ("100/s burst 1", 1, "99/s burst 1000", 1, 1),
        // 5 and 4 requests a second.
        ("10/s", 2, "4/s", 1, 1),
        ("10/s", 3, "4/s", 1, 0),
        // The rates are equal.
        ("1/s burst 5", 1, "60/m burst 4", 1, 1),
        ("7/s burst 4", 1, "420/m burst 5", 1, 0),
        ("2/s burst 10", 2, "1/s burst 4", 1, 1),
        ("2/s burst 10", 2, "1/s burst 6", 1, 0),
        ("3/250ms burst 3", 1, "12/s burst 2", 1, 1),
        // The rates and the bursts are equal, and `/b/c` is longer.
        ("1/s", 1, "1/s", 1, 1),
        ("1/s burst 10", 1, "10/s burst 100", 10, 1),
    ] {
        let routes = [route("/a", a, a_cost), route("/b/c", b, b_cost)];
        for default in [None, Some("1000/s".parse().expect("a quota"))] {
            let prefixes = Prefixes::new(&routes, default, false);
            assert_eq!(prefixes.find("/a/../b/c"), Some(tighter), "{a} {a_cost} {b} {b_cost}");
            assert_eq!((prefixes.find("/a"), prefixes.find("/b/c")), (Some(0), Some(1)));
        }
    }
}

#[test]
fn the_default_limit_counts_if_a_reading_is_under_no_route() {
    let routes = [("/loose", "1000/s"), ("/tight", "1/s"), ("/loose/tight", "2/s")];
    let limited = prefixes(&routes, Some("10/s burst 10"));
    let unlimited = prefixes(&routes, None);
    for (path, limit, limit_without_default) in [
        ("/loose", Some(0), Some(0)),
        ("/loose/x", Some(0), Some(0)),
        // Every reading is under the route.
        ("/loose//x", Some(0), Some(0)),
        ("/loose/x;y", Some(0), Some(0)),
        ("/loose/%6c", Some(0), Some(0)),
        ("/loose/x/../y", Some(0), Some(0)),
        // The path as it is written is not under the route.
        ("/LOOSE", None, Some(0)),
        ("//loose", None, Some(0)),
        ("/%6coose", None, Some(0)),
        ("/x/../loose", None, Some(0)),
        ("/loose;x", None, Some(0)),
        // After a step, the path is not under the route.
        ("/loose/..", None, Some(0)),
        ("/TIGHT", Some(1), Some(1)),
        ("/loose/../tight", Some(1), Some(1)),
        ("/loose//tight", Some(2), Some(2)),
        ("/x", None, None),
    ] {
        assert_eq!(limited.find(path), limit, "{path}");
        assert_eq!(unlimited.find(path), limit_without_default, "{path}");
    }
    // The route has the same numbers, and a longer prefix.
    assert_eq!(prefixes(&[("/a", "10/s")], Some("600/m burst 10")).find("//a"), Some(0));
}

#[test]
fn prefixes_are_made_normal() {
    for prefix in ["/a/b", "/a/b/", "//a///b//", "/x/../a/./b", "/%61/b", "/a%2fb", "/../a/b/."] {
        let prefixes = prefixes(&[(prefix, "1/s")], None);
        for path in ["/a/b", "/a/b/c", "/A%2fb"] {
            assert_eq!(prefixes.find(path), Some(0), "{prefix} {path}");
        }
        assert_eq!(prefixes.find("/a"), None, "{prefix}");
    }
    for prefix in ["/", "//", "/.", "/..", "/a/..", "/%2e%2F"] {
        let prefixes = prefixes(&[(prefix, "1/s")], None);
        for path in ["/", "", "*", "/a", "//", "/%"] {
            assert_eq!(prefixes.find(path), Some(0), "{prefix} {path}");
        }
    }
    // Escapes of bytes that must be encoded, in the prefix and in the path.
    for prefix in ["/caf\u{e9}/a b", "/caf%C3%A9/a%20b", "/caf%c3%a9/a b"] {
        let prefixes = prefixes(&[(prefix, "1000/s")], Some("1/s"));
        for path in ["/caf%C3%A9/a%20b", "/caf%c3%a9/a%20b/c", "/caf\u{e9}/a%20b"] {
            assert_eq!(prefixes.find(path), Some(0), "{prefix} {path}");
        }
    }
    let odd = prefixes(&[("/100%25", "1/s"), ("/a;v=1", "2/s"), ("/b\\c", "3/s"), ("/%zz", "4/s")], None);
    for (path, route) in [("/100%25", 0), ("/a;v=1/x", 1), ("/a%3Bv=1", 1), ("/b\\c", 2), ("/b%5cc", 2)] {
        assert_eq!(odd.find(path), Some(route), "{path}");
    }
    assert_eq!((odd.find("/%zz"), odd.find("/%25zz"), odd.find("/a")), (Some(3), Some(3), None));
}

#[test]
fn without_routes_there_is_the_default_limit() {
    for path in ["/", "*", "", "//a;b%2f..", "/LOGIN"] {
        assert_eq!(prefixes(&[], None).find(path), None, "{path}");
        assert_eq!(prefixes(&[], Some("1/s")).find(path), None, "{path}");
    }
}

#[test]
fn work_is_bounded() {
    let prefixes = prefixes(&[("/loose", "9/s"), ("/tight", "1/s")], Some("5/s"));
    for unit in [
        "/a;b%2fc\\d//e/./%2e%2e;/",
        "/%2e%2e;%5c..\\.;//",
        ";%3b",
        "%25",
        "\\%5c",
        "//",
        "/../a",
        "/%2f",
        "%2e/;/",
    ] {
        let path = format!("/{}", unit.repeat(64 * 1_024 / unit.len()));
        match texts(&path) {
            Some(found) => {
                assert!(found.len() <= MAX_READINGS, "{unit}");
                assert!(found.iter().map(Vec::len).sum::<usize>() <= MAX_BYTES, "{unit}");
                let distinct: HashSet<_> = found.iter().collect();
                assert_eq!(distinct.len(), found.len(), "{unit}");
            }
            // The path counts as under every route.
            None => assert_eq!(prefixes.find(&path), Some(1), "{unit}"),
        }
    }
    // The bound on readings, and that on bytes.
    let many = "/a;b%3bc//%2f/d\\%5c/.;/%2e/x/%2e%2e;y//..";
    assert_eq!((texts(many), prefixes.find(many)), (None, Some(1)));
    let long = format!("/loose/{}", "/;\\%2f".repeat(10_000));
    assert_eq!((texts(&long), prefixes.find(&long)), (None, Some(1)));
    assert_eq!(prefixes.find(&"/a".repeat(32_000)), None);
}

/// Returns the path that a server looks up. The code shares nothing with `STEPS`.
fn read_by_server(path: &str, before: u8, decoding: u8, after: u8) -> String {
    let mut path = path.to_owned();
    for (steps, escapes) in [(before, decoding), (after, 0)] {
        if steps & 1 != 0 {
            path = path.replace('\\', "/");
        }
        if steps & 2 != 0 {
            let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or(""));
            path = segments.collect::<Vec<_>>().join("/");
        }
        while steps & 4 != 0 && path.contains("//") {
            path = path.replace("//", "/");
        }
        if steps & 8 != 0 {
            let mut stack = vec![];
            for segment in path.split('/').skip(1) {
                match segment {
                    "." => {}
                    ".." => drop(stack.pop()),
                    _ => stack.push(segment),
                }
            }
            path = format!("/{}", stack.join("/"));
        }
        while steps & 16 != 0 && path.contains("//") {
            path = path.replace("//", "/");
        }
        let escapes = [
            &[][..],
            &["%2e.", "%6cl", "%4cL"],
            &["%2e.", "%6cl", "%4cL", "%5c\\", "%3b;"],
            &["%2e.", "%6cl", "%4cL", "%5c\\", "%3b;", "%2f/"],
        ][usize::from(escapes)];
        for escape in escapes {
            path = path.replace(&escape[..3], &escape[3..]);
        }
    }
    path
}

fn noise() -> impl Strategy<Value = String> {
    let part = select(vec![
        "/",
        "/",
        "\\",
        "%2f",
        "%5c",
        ".",
        "..",
        "%2e",
        "%2e.",
        "a",
        ";",
        ";a",
        "%3ba",
        "/.",
        "/a/..",
        "/a%2f..",
        "/a\\..",
        "/a%5c..",
        "/..;a",
        "/a/..%3b",
        "/a;b/%2e%2e",
        "/a%2fb/..",
        "/%2e",
    ]);
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, max_global_rejects: 300_000, ..ProptestConfig::default() })]
    #[test]
    fn a_route_of_the_server_is_found(
        start in noise(),
        login in select(vec!["login", "LOGIN", "%6cogin", "%4cogin", "Login"]),
        end in noise(),
        (before, decoding, after) in (0..16_u8, 0..4_u8, 0..32_u8),
    ) {
        let path = format!("/{start}/{login}{end}");
        let read = read_by_server(&path, before, decoding, after).to_ascii_lowercase();
        prop_assume!(read == "/login" || read.starts_with("/login/"));
        let prefixes = prefixes(&[("/login", "2/s"), ("/tighter", "1/s")], Some("3/s"));
        let expected = if texts(&path).is_some() { Some(0) } else { Some(1) };
        prop_assert_eq!(prefixes.find(&path), expected, "{} is {}", path, read);
    }

    #[test]
    fn a_path_under_an_exempt_prefix_is_there_for_every_server(
        start in noise(),
        name in select(vec!["login", "LOGIN", "%6cogin", "..", "a"]),
        end in noise(),
        (before, decoding, after) in (0..16_u8, 0..4_u8, 0..32_u8),
    ) {
        let path = format!("/static/{start}{name}{end}");
        prop_assume!(has("/static/*", &path));
        prop_assert!(has_one_reading(&path), "{}", path);
        let read = read_by_server(&path, before, decoding, after);
        prop_assert!(read.starts_with("/static/"), "{} is {}", path, read);
    }
}
