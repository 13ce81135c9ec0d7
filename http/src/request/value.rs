//! The values of headers and of cookies, as a server reads them that checks a credential.
//!
//! A key is compared by its bytes. So each spelling of one credential has to give the same bytes:
//! else a client with one credential has as many buckets as it has spellings. A reading may take
//! two values for one, but never one for two.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, PROXY_AUTHORIZATION};

/// Returns the value of a header, without the spaces around it. `None` if it is missing, empty, or
/// present with different values.
///
/// Of `Authorization` and `Proxy-Authorization` it is the part behind the scheme. The scheme has
/// letters of either case, and any number of spaces behind it (RFC 9110, 11.4).
///
/// # Examples
///
/// ```
/// use http::header::{AUTHORIZATION, HeaderMap};
/// use tollgate_http::header_value;
///
/// let mut headers = HeaderMap::new();
/// headers.append("authorization", "bearer   k1 ".parse().unwrap());
/// headers.append("authorization", "".parse().unwrap());
/// assert_eq!(header_value(&headers, &AUTHORIZATION), Some(&b"k1"[..]));
/// headers.append("authorization", "Bearer k2".parse().unwrap());
/// assert_eq!(header_value(&headers, &AUTHORIZATION), None);
/// ```
#[must_use]
pub fn header_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let has_scheme = *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION;
    only(headers.get_all(name).iter().map(|value| {
        let value = value.as_bytes().trim_ascii();
        if has_scheme { without_scheme(value) } else { value }
    }))
}

/// Returns the value of a cookie: without the spaces around its name and itself, its quotes and its
/// escapes. `None` if it is missing, empty, or present with different values.
///
/// # Examples
///
/// ```
/// use http::header::HeaderMap;
/// use tollgate_http::cookie_value;
///
/// let mut headers = HeaderMap::new();
/// headers.append("cookie", r#"a=1; sid ="%6b1"; sid=k1"#.parse().unwrap());
/// assert_eq!(cookie_value(&headers, "sid").as_deref(), Some(&b"k1"[..]));
/// ```
#[must_use]
pub fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, [u8]>> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    only(pairs.filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..at].trim_ascii() == name.as_bytes()).then(|| of_cookie(&pair[at + 1..]))
    }))
}

/// Returns the value that all values have which are not empty.
fn only<T: AsRef<[u8]>>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values = values.filter(|value| !value.as_ref().is_empty());
    let only = values.next()?;
    values.all(|value| value.as_ref() == only.as_ref()).then_some(only)
}

fn without_scheme(credentials: &[u8]) -> &[u8] {
    let space = credentials.iter().position(u8::is_ascii_whitespace);
    space.map_or(credentials, |at| credentials[at..].trim_ascii_start())
}

/// Reads the value of a pair. Some servers keep quotes or escapes, and know no credential that has
/// them.
fn of_cookie(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    let inside = quoted.map_or(value, <[u8]>::trim_ascii);
    let is_escaped = |byte: &u8| *byte == b'%' || (quoted.is_some() && *byte == b'\\');
    if inside.iter().any(is_escaped) { decoded(inside, quoted.is_some()).into() } else { inside.into() }
}

/// Decodes `%6b`, and in quotes also `\153` and `\k`: the forms of URLs, and of Python's cookies.
#[cold]
fn decoded(mut text: &[u8], is_quoted: bool) -> Vec<u8> {
    let number = |digits: &[u8], radix| {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u8::from_str_radix(digits, radix).ok()
    };
    let mut kept = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let escape = match first {
            b'%' => rest.split_at_checked(2).and_then(|(digits, rest)| Some((number(digits, 16)?, rest))),
            b'\\' if is_quoted => {
                let octal = rest.split_at_checked(3);
                let octal = octal.and_then(|(digits, rest)| Some((number(digits, 8)?, rest)));
                octal.or_else(|| rest.split_first().map(|(byte, rest)| (*byte, rest)))
            }
            _ => None,
        };
        let byte;
        (byte, text) = escape.unwrap_or((*first, rest));
        kept.push(byte);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, lines: &[&str]) -> HeaderMap {
        let lines = lines.iter().map(|line| line.as_bytes().try_into().expect("a value"));
        lines.map(|line| (HeaderName::from_static(name), line)).collect()
    }

    #[test]
    fn each_spelling_of_a_value_is_one_key() {
        for lines in [&["k1"][..], &[" k1"], &["\t k1 \t"], &["k1", ""], &[" ", "k1", "\t"], &["k1", "k1 "]] {
            assert_eq!(
                header_value(&headers("x-api-key", lines), &"x-api-key".parse().unwrap()),
                Some(&b"k1"[..]),
                "{lines:?}"
            );
        }
        for lines in [&[][..], &[""], &[" ", "\t"], &["k1", "k2"]] {
            assert_eq!(
                header_value(&headers("x-api-key", lines), &"x-api-key".parse().unwrap()),
                None,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn each_spelling_of_credentials_is_one_key() {
        for lines in [
            &["Bearer k1"][..],
            &["bearer  k1"],
            &[" BEARER \t k1 "],
            &["k1"],
            &["Bearer k1", "bearer k1", ""],
        ] {
            for name in [AUTHORIZATION, PROXY_AUTHORIZATION] {
                let found = headers(
                    if name == AUTHORIZATION { "authorization" } else { "proxy-authorization" },
                    lines,
                );
                assert_eq!(header_value(&found, &name), Some(&b"k1"[..]), "{lines:?}");
            }
        }
        assert_eq!(
            header_value(&headers("authorization", &["Bearer"]), &AUTHORIZATION),
            Some(&b"Bearer"[..])
        );
    }

    #[test]
    fn each_spelling_of_a_cookie_is_one_key() {
        for lines in [
            &["sid=k1"][..],
            &["sid=   k1"],
            &["sid =k1\t"],
            &["sid=\"k1\""],
            &[" a=sid=2;sid = \" k1 \" ;b"],
            &["sid=k1", ""],
            &["sid=k1; sid=", "sid=\"\""],
            &["sid=k1; sid=k1"],
            &["a=1", "sid=k1"],
            &["sid=%6b1"],
            &["sid=%6B%31"],
            &["sid=\"\\1531\""],
            &["sid=\"\\k\\1\""],
            &["sids=x; xsid=y; sid=k1; Sid=z"],
        ] {
            assert_eq!(
                cookie_value(&headers("cookie", lines), "sid").as_deref(),
                Some(&b"k1"[..]),
                "{lines:?}"
            );
        }
        for lines in [&["sid=k1; sid=k2"][..], &["sid"], &["sid="], &["sid=\"\""], &["a=1;b=sid=k1", ""], &[]]
        {
            assert_eq!(cookie_value(&headers("cookie", lines), "sid"), None, "{lines:?}");
        }
        // No escape, but a part of the value.
        for value in ["%", "%6", "%zz", "%+6", "\"", "\\k", "a\"b", "100%"] {
            let found = headers("cookie", &[&format!("sid={value}")]);
            assert_eq!(cookie_value(&found, "sid").as_deref(), Some(value.as_bytes()), "{value}");
        }
        assert_eq!(cookie_value(&headers("cookie", &["sid=\"\\\""]), "sid").as_deref(), Some(&b"\\"[..]));
    }
}
