//! The route of a path, however the path is spelled.
//!
//! Servers differ in how they read a path. One takes it as it is; another first decodes it,
//! resolves its dots or strips its parameters. The proxy does not know how the upstream reads. So
//! each path has several readings, and the tightest of the limits that they select applies.

use std::cmp::{Ordering, Reverse};

use tollgate::Rule;

use super::settings::Route;

/// The most readings of a path. A path with more is taken to be under every route.
const MAX_READINGS: usize = 64;
/// The most bytes that all steps write for a path. A path with more is taken to be under every
/// route. They take twice the time of a usual refusal.
const MAX_BYTES: usize = 6 * 1_024;

/// The prefixes of the routes.
///
/// A path is under the prefix `/a` if it is `/a` or begins with `/a/`, and every path is under `/`.
/// A reading selects the route with the longest prefix that it is under, or else the default limit.
/// The tightest of the selected limits applies: the one with the fewest requests in a time. At
/// equal rates, the smaller burst of requests is the tighter, and then the longer prefix.
pub(crate) struct Prefixes {
    /// The limits, the tightest first.
    limits: Vec<Limit>,
    /// The indices of the routes in `limits`: the longest prefix first, and then the tightest
    /// limit.
    longest_first: Vec<usize>,
    /// The index of the default limit in `limits`.
    default: Option<usize>,
    case_sensitive: bool,
}

struct Limit {
    /// The index of the route, or `None` for the default limit.
    route: Option<usize>,
    prefix: Vec<u8>,
    /// Requests per nanosecond.
    rate: f64,
    /// Requests at once.
    burst: f64,
}

impl Prefixes {
    /// Makes the prefixes of the routes, beside a default limit at which each request costs 1
    /// token.
    pub(crate) fn new(routes: &[Route], default: Option<Rule>, case_sensitive: bool) -> Prefixes {
        let mut limits = Vec::with_capacity(routes.len() + 1);
        for (index, route) in routes.iter().enumerate() {
            limits.push(Limit::new(Some(index), normal(&route.prefix), route.rule, route.cost));
        }
        limits.extend(default.map(|rule| Limit::new(None, Vec::new(), rule, 1)));
        limits.sort_by(Limit::tightest_first);

        let default = limits.iter().position(|limit| limit.route.is_none());
        let mut longest_first: Vec<usize> = (0..limits.len()).collect();
        longest_first.retain(|place| Some(*place) != default);
        longest_first.sort_by_key(|place| Reverse(limits[*place].prefix.len()));
        Prefixes { limits, longest_first, default, case_sensitive }
    }

    /// Returns the index of the route whose limit applies to the path of a URI. It is `None` for
    /// the default limit, if there is one.
    ///
    /// The time is linear in the number of routes.
    pub(crate) fn find(&self, path: &str) -> Option<usize> {
        if self.longest_first.is_empty() {
            return None;
        }
        let path = path.as_bytes();
        let place = if marks(path) == 0 {
            self.place(path)
        } else {
            match readings(path) {
                Some(readings) => readings.iter().filter_map(|reading| self.place(&reading.path)).min(),
                None => Some(0),
            }
        };
        self.limits[place?].route
    }

    /// Returns the index of the limit that applies to a reading.
    fn place(&self, reading: &[u8]) -> Option<usize> {
        let with_case = self.longest(reading, <[u8]>::eq).or(self.default);
        if self.case_sensitive {
            return with_case;
        }
        let without = self.longest(reading, <[u8]>::eq_ignore_ascii_case).or(self.default);
        [with_case, without].into_iter().flatten().min()
    }

    fn longest(&self, reading: &[u8], same: fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let mut places = self.longest_first.iter().copied();
        places.find(|place| is_under(reading, &self.limits[*place].prefix, same))
    }
}

impl Limit {
    fn new(route: Option<usize>, prefix: Vec<u8>, rule: Rule, cost: u64) -> Limit {
        // Equal rates such as `1/s` and `60/m` give equal floats: with usual numbers, only the
        // quotient is rounded.
        let time = rule.period().as_nanos() as f64 * cost as f64;
        let rate = rule.tokens() as f64 / time;
        Limit { route, prefix, rate, burst: rule.capacity() as f64 / cost as f64 }
    }

    fn tightest_first(&self, other: &Limit) -> Ordering {
        let order = self.rate.total_cmp(&other.rate).then(self.burst.total_cmp(&other.burst));
        order.then(other.prefix.len().cmp(&self.prefix.len()))
    }
}

/// Returns a prefix in the form of a reading: decoded, without empty segments, dots and a last `/`.
fn normal(prefix: &str) -> Vec<u8> {
    let decoded = decoded(prefix.as_bytes(), |_| true);
    let mut prefix = without_dots(&without_empty(&decoded));
    if prefix.last() == Some(&b'/') {
        prefix.pop();
    }
    prefix
}

/// Returns whether a reading is a normal prefix, or begins with it and a `/`.
fn is_under(reading: &[u8], prefix: &[u8], same: fn(&[u8], &[u8]) -> bool) -> bool {
    let Some((start, rest)) = reading.split_at_checked(prefix.len()) else { return false };
    prefix.is_empty() || (matches!(rest.first(), None | Some(b'/')) && same(start, prefix))
}

/// Returns whether every server reads a path as it is spelled. Escapes, backslashes, parameters,
/// empty segments, dot segments and bytes beyond ASCII are read in different ways.
pub(crate) fn is_plain(path: &str) -> bool {
    marks(path.as_bytes()) == 0
}

/// Returns whether every server reads a path as it is spelled, but for escapes of bytes that have
/// no other spelling.
pub(crate) fn has_one_reading(path: &str) -> bool {
    readings(path.as_bytes()).is_some_and(|readings| readings.len() == 1)
}

/// Returns the marks of a path: one for each construct that servers read in different ways.
fn marks(path: &[u8]) -> u8 {
    let mut marks = 0;
    for (at, byte) in path.iter().enumerate() {
        marks |= MARKS[usize::from(*byte)];
        if *byte == b'/' {
            marks |= match &path[at + 1..] {
                [b'/', ..] => EMPTY_SEGMENT,
                [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..] => DOT_SEGMENT,
                _ => 0,
            };
        }
    }
    marks
}

/// The marks of single bytes.
const MARKS: [u8; 256] = {
    let mut marks = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        marks[byte] = match byte as u8 {
            b'%' => ESCAPE,
            b'\\' => BACKSLASH,
            b';' => SEMICOLON,
            b'?' | b'#' | 0 => END,
            0x80.. => NOT_ASCII,
            _ => 0,
        };
        byte += 1;
    }
    marks
};

const ESCAPE: u8 = 1;
const BACKSLASH: u8 = 2;
const SEMICOLON: u8 = 4;
const EMPTY_SEGMENT: u8 = 8;
const DOT_SEGMENT: u8 = 16;
const NOT_ASCII: u8 = 32;
const END: u8 = 64;

/// A change that some servers make to a path before they look for its handler.
struct Step {
    /// The mark of the paths that the step can change.
    mark: u8,
    change: fn(&[u8]) -> Vec<u8>,
}

/// The decoding of unreserved characters alone (RFC 3986, 6.2.2.2).
const UNRESERVED: Step = Step { mark: ESCAPE, change: |path| decoded(path, is_unreserved) };
const ESCAPES: Step = Step { mark: ESCAPE, change: |path| decoded(path, |_| true) };
/// The decoding by servers that split a path into segments first.
const IN_SEGMENTS: Step = Step { mark: ESCAPE, change: |path| decoded(path, |byte| byte != b'/') };
/// The step of servers that decode a path and leave out the bytes that are not UTF-8.
const MALFORMED: Step = Step { mark: NOT_ASCII, change: without_malformed };
/// The step of servers that read a decoded path as a reference, or as a string of C.
const REST: Step = Step { mark: END, change: without_rest };
const BACKSLASHES: Step = Step { mark: BACKSLASH, change: with_slashes };
/// The step of servers that read a path as a reference: in `//a/b` the host is `a` (RFC 3986, 4.2).
const AUTHORITY: Step = Step { mark: EMPTY_SEGMENT, change: without_authority };
const PARAMETERS: Step = Step { mark: SEMICOLON, change: without_parameters };
const EMPTY: Step = Step { mark: EMPTY_SEGMENT, change: without_empty };
const DOTS: Step = Step { mark: DOT_SEGMENT, change: without_dots };

/// The steps in the order of servers. A server takes some of them, and at most one from each line.
const STEPS: [&[Step]; 14] = [
    &[UNRESERVED],
    &[BACKSLASHES],
    &[AUTHORITY],
    &[PARAMETERS],
    &[EMPTY],
    &[DOTS],
    &[ESCAPES, IN_SEGMENTS],
    &[MALFORMED],
    &[REST],
    &[BACKSLASHES],
    &[PARAMETERS],
    &[EMPTY],
    &[DOTS],
    &[EMPTY],
];

/// A path after some steps.
struct Reading {
    path: Vec<u8>,
    marks: u8,
}

/// Returns all readings of a path but for case, or `None` if they exceed the bounds.
fn readings(path: &[u8]) -> Option<Vec<Reading>> {
    let mut written = path.len();
    // Even two steps would write too much.
    if 3 * written > MAX_BYTES {
        return None;
    }
    // A byte that a client must encode has one spelling, so its escape is no respelling.
    let path = decoded(path, must_be_encoded);
    let marks_of_path = marks(&path);
    let mut found = vec![Reading { path, marks: marks_of_path }];
    for steps in STEPS {
        for at in 0..found.len() {
            for step in steps {
                let reading = &found[at];
                if reading.marks & step.mark == 0 {
                    continue;
                }
                let path = (step.change)(&reading.path);
                written += path.len();
                if written > MAX_BYTES {
                    return None;
                }
                if found.iter().any(|reading| reading.path == path) {
                    continue;
                }
                if found.len() == MAX_READINGS {
                    return None;
                }
                let marks = marks(&path);
                found.push(Reading { path, marks });
            }
        }
    }
    Some(found)
}

fn with_slashes(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
}

fn without_malformed(path: &[u8]) -> Vec<u8> {
    path.utf8_chunks().flat_map(|chunk| chunk.valid().as_bytes()).copied().collect()
}

/// Turns `/a?b` into `/a`, and does the same for `#` and NUL. They come from escapes, as a path has
/// neither.
fn without_rest(path: &[u8]) -> Vec<u8> {
    path.iter().copied().take_while(|byte| !matches!(byte, b'?' | b'#' | 0)).collect()
}

/// Turns `//a/b` into `/b`. More slashes at the start make no difference (WHATWG URL, 4.4).
fn without_authority(path: &[u8]) -> Vec<u8> {
    let Some(mut rest) = path.strip_prefix(b"//") else { return path.to_vec() };
    while let Some(after) = rest.strip_prefix(b"/") {
        rest = after;
    }
    match rest.iter().position(|byte| *byte == b'/') {
        Some(end) => rest[end..].to_vec(),
        None => b"/".to_vec(),
    }
}

/// Turns `/a;b=1/c` into `/a/c`.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(path.len());
    let mut is_parameter = false;
    for byte in path {
        match byte {
            b'/' => is_parameter = false,
            b';' => is_parameter = true,
            _ => {}
        }
        if !is_parameter {
            kept.push(*byte);
        }
    }
    kept
}

/// Turns `/a//b` into `/a/b`.
fn without_empty(path: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(path.len());
    for byte in path {
        if *byte != b'/' || kept.last() != Some(&b'/') {
            kept.push(*byte);
        }
    }
    kept
}

/// Turns `/a/./b/../c` into `/a/c` (RFC 3986, 5.2.4). A `..` removes an empty segment like any
/// other.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(path.len());
    let mut ends_in_dots = false;
    for segment in path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/') {
        ends_in_dots = matches!(segment, b"." | b"..");
        match segment {
            b"." => {}
            b".." => kept.truncate(kept.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            _ => {
                kept.push(b'/');
                kept.extend_from_slice(segment);
            }
        }
    }
    if ends_in_dots {
        kept.push(b'/');
    }
    kept
}

/// Decodes the escapes of some bytes, once. Other escapes stay, as does a `%` that begins no
/// escape.
fn decoded(path: &[u8], is_wanted: fn(u8) -> bool) -> Vec<u8> {
    let mut kept = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match escaped(rest) {
            Some((byte, after)) if is_wanted(byte) => (byte, after),
            _ => (*first, after),
        };
        kept.push(byte);
        rest = after;
    }
    kept
}

/// Returns the byte of the escape at the start of a path, and the path after it.
fn escaped(path: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, rest @ ..] = path else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = digit(high)? * 16 + digit(low)?;
    Some((u8::try_from(byte).ok()?, rest))
}

/// Returns whether a byte is unreserved (RFC 3986, 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns whether RFC 3986, 3.3 has no place for a byte in a path. The backslash is an exception
/// here. Servers take it as a slash or not, and its escape as the one or the other.
fn must_be_encoded(byte: u8) -> bool {
    let is_delimiter = byte.is_ascii() && b"!$&'()*+,;=:@/%\\".contains(&byte);
    !is_delimiter && !is_unreserved(byte)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::proxy::settings::ExemptPath;

    fn route(prefix: &str, quota: &str, cost: u64) -> Route {
        let rule = quota.parse().expect("a quota");
        let (name, prefix) = (prefix.to_owned(), prefix.to_owned());
        Route { name, prefix, rule, cost, priority: tollgate::Priority::Critical }
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
            ("/login%20", None),
            ("/login%", None),
            ("/login%/", None),
            ("/login%2", None),
            ("/login/%zz", Some(0)),
            ("/%256cogin", None),
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
        for line in include_str!("../../tests/spellings/accepted.txt").lines() {
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
        let prefixes =
            prefixes(&[("/", "5/s"), ("/a", "1/s"), ("/a/b", "9/s"), ("/a/b/c", "8/s")], Some("1/s"));
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
    fn a_plain_path_has_one_reading() {
        for path in ["/", "", "*", "/a", "/a/", "/.a/a./..a/a..", "/A-z.0_~", "/a,b:c@d=e", "/.../a"] {
            assert!(marks(path.as_bytes()) == 0, "{path}");
            assert_eq!(texts(path), Some(vec![path.as_bytes().to_vec()]), "{path}");
        }
        for path in ["//", "//a", "/a//", "/a//b", "/.", "/..", "/a/.", "/./a", "/a/../b", "/%", "/;", "/\\"]
        {
            assert!(marks(path.as_bytes()) != 0, "{path}");
        }
    }

    #[test]
    fn usual_odd_paths_have_few_readings() {
        for (path, count) in [
            ("/a%20b/caf%C3%A9", 1),
            ("/a+b%2Bc", 2),
            ("/img/https%3A%2F%2Fcdn.example%2Fa%20b.jpg", 4),
            ("/img/https://cdn.example/a.jpg", 2),
            ("/matrix;x=1;y=2/z", 2),
            ("/x%2f..%2fy", 3),
            ("/a/../b", 2),
        ] {
            assert_eq!(texts(path).map(|found| found.len()), Some(count), "{path}");
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
            prop_assume!(ExemptPath::Under("/static/".to_owned()).has(&path));
            prop_assert!(has_one_reading(&path), "{}", path);
            let read = read_by_server(&path, before, decoding, after);
            prop_assert!(read.starts_with("/static/"), "{} is {}", path, read);
        }
    }
}
