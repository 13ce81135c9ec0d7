//! The readings of a path, however the path is spelled, and of a method.
//!
//! Servers differ in how they read a path. One takes it as it is; another first decodes it,
//! resolves its dots or strips its parameters. Neither the proxy nor a check knows how the upstream
//! reads. So each path has several readings, which are those of both.

/// The most readings of a path. A path with more is taken to be under every route.
pub const MAX_READINGS: usize = 64;
/// The most bytes that all steps write for a path. A path with more is taken to be under every
/// route. They take twice the time of a usual refusal.
pub const MAX_BYTES: usize = 6 * 1_024;

/// Spellings of `/login` that servers take for it, a line each, after the name of the server. All
/// parts that read paths are tried on this list.
#[cfg(feature = "testing")]
pub const ACCEPTED: &str = include_str!("paths/accepted.txt");

/// The name of all methods that are made up.
pub const OTHER_METHOD: &str = "other";

/// Returns a method that a server may know. A client may make up others, and each would be a key.
pub fn known_method(method: &str) -> Option<&str> {
    let is_known =
        matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE");
    is_known.then_some(method)
}

/// Returns whether every server reads a path as it is spelled. Escapes, backslashes, parameters,
/// empty segments, dot segments, spaces and bytes beyond ASCII are read in different ways.
pub fn is_plain(path: &str) -> bool {
    marks(path.as_bytes()) == 0
}

/// Returns whether every server reads a path as it is spelled, but for escapes of bytes that have
/// no other spelling.
pub fn has_one_reading(path: &str) -> bool {
    readings(path.as_bytes()).is_some_and(|readings| readings.len() == 1)
}

/// Returns the marks of a path: one for each construct that servers read in different ways.
pub fn marks(path: &[u8]) -> u8 {
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
            b'\t'..=b'\r' | b' ' => SPACE,
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
const SPACE: u8 = 128;

/// A change that some servers make to a path before they look for its handler, behind the mark of
/// the paths that it can change.
type Step = (u8, fn(&[u8]) -> Vec<u8>);

/// The steps in the order of servers. A server takes some of them, and at most one from each line.
const STEPS: [&[Step]; 16] = [
    // Unreserved characters alone are decoded (RFC 3986, 6.2.2.2).
    &[(ESCAPE, |path| decoded(path, is_unreserved))],
    &[(BACKSLASH, with_slashes)],
    // A path is read as a reference: in `//a/b` the host is `a` (RFC 3986, 4.2).
    &[(EMPTY_SEGMENT, without_authority)],
    &[(SEMICOLON, without_parameters)],
    &[(EMPTY_SEGMENT, without_empty)],
    &[(DOT_SEGMENT, without_dots)],
    // The second is of servers that split a path into segments first.
    &[(ESCAPE, |path| decoded(path, |_| true)), (ESCAPE, |path| decoded(path, |byte| byte != b'/'))],
    // A proxy behind this one has decoded the path once.
    &[(ESCAPE, |path| decoded(path, |_| true))],
    // The bytes of a decoded path that are not UTF-8 are left out.
    &[(NOT_ASCII, without_malformed)],
    // A decoded path is read as a reference, or as a string of C.
    &[(END, without_rest)],
    // Names of files have no spaces at their ends.
    &[(SPACE, without_spaces)],
    &[(BACKSLASH, with_slashes)],
    &[(SEMICOLON, without_parameters)],
    &[(EMPTY_SEGMENT, without_empty)],
    &[(DOT_SEGMENT, without_dots)],
    &[(EMPTY_SEGMENT, without_empty)],
];

/// A path after some steps.
pub struct Reading {
    pub path: Vec<u8>,
    marks: u8,
}

/// Returns all readings of a path but for case, or `None` if they exceed the bounds.
pub fn readings(path: &[u8]) -> Option<Vec<Reading>> {
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
            for (mark, change) in steps {
                let reading = &found[at];
                if reading.marks & mark == 0 {
                    continue;
                }
                let path = change(&reading.path);
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

/// Turns `/a /b` into `/a/b`.
fn without_spaces(path: &[u8]) -> Vec<u8> {
    path.split(|byte| *byte == b'/').map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b'/')
}

/// Turns `//a/b` into `/b`. More slashes at the start make no difference (WHATWG URL, 4.4).
fn without_authority(path: &[u8]) -> Vec<u8> {
    if !path.starts_with(b"//") {
        return path.to_vec();
    }
    let from_host = path.iter().copied().skip_while(|byte| *byte == b'/');
    let rest: Vec<u8> = from_host.skip_while(|byte| *byte != b'/').collect();
    if rest.is_empty() { b"/".to_vec() } else { rest }
}

/// Turns `/a;b=1/c` into `/a/c`.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let bare = |segment: &[u8]| segment.iter().copied().take_while(|byte| *byte != b';').collect();
    path.split(|byte| *byte == b'/').map(bare).collect::<Vec<Vec<u8>>>().join(&b'/')
}

/// Turns `/a//b` into `/a/b`.
pub fn without_empty(path: &[u8]) -> Vec<u8> {
    let mut kept = path.to_vec();
    kept.dedup_by(|byte, before| [*before, *byte] == *b"//");
    kept
}

/// Turns `/a/./b/../c` into `/a/c` (RFC 3986, 5.2.4). A `..` removes an empty segment like any
/// other.
pub fn without_dots(path: &[u8]) -> Vec<u8> {
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
pub fn decoded(path: &[u8], is_wanted: fn(u8) -> bool) -> Vec<u8> {
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
    use super::*;

    fn texts(path: &str) -> Option<Vec<Vec<u8>>> {
        let readings = readings(path.as_bytes())?;
        Some(readings.into_iter().map(|reading| reading.path).collect())
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
            ("/100%25", 2),
            ("/a%20/b%20", 2),
        ] {
            assert_eq!(texts(path).map(|found| found.len()), Some(count), "{path}");
        }
    }
}
