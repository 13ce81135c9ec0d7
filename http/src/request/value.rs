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
/// letters of either case, and any number of spaces behind it (RFC 9110, 11.4). Servers read the
/// credentials leniently, so:
///
/// * Of `Basic` it is the user and the password, decoded up to the first `=` or NUL.
/// * Of any other scheme it is the token: up to a space, `,`, `;` or `"`, and without `=` at its
///   end. Of the signature of a JWT all spellings are one.
/// * `None` for parameters, `name=value`: those of `Digest`, OAuth 1 or AWS differ in each request.
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
/// assert_eq!(header_value(&headers, &AUTHORIZATION).as_deref(), Some(&b"k1"[..]));
/// headers.append("authorization", "Bearer k2".parse().unwrap());
/// assert_eq!(header_value(&headers, &AUTHORIZATION), None);
/// ```
#[must_use]
pub fn header_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let has_scheme = *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION;
    only(headers.get_all(name).iter().map(|value| {
        let value = value.as_bytes().trim_ascii();
        if has_scheme && !value.is_empty() { of_credentials(value) } else { Some(value.into()) }
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
        (pair[..at].trim_ascii() == name.as_bytes()).then(|| Some(of_cookie(&pair[at + 1..])))
    }))
}

/// Returns the value that all values have which are not empty. `None` if one of them is `None`.
fn only<T: AsRef<[u8]>>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let mut values = values.filter(|value| value.as_ref().is_none_or(|value| !value.as_ref().is_empty()));
    let only = values.next()??;
    values.all(|value| value.is_some_and(|value| value.as_ref() == only.as_ref())).then_some(only)
}

fn of_credentials(credentials: &[u8]) -> Option<Cow<'_, [u8]>> {
    let space = credentials.iter().position(u8::is_ascii_whitespace);
    let (scheme, text) = credentials.split_at(space.unwrap_or(0));
    let text = text.trim_ascii_start();
    if scheme.eq_ignore_ascii_case(b"basic") {
        return Some(of_base64(text).into()).filter(|decoded: &Cow<'_, [u8]>| !decoded.is_empty());
    }
    let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b';' | b'"');
    let (padded, rest) = text.split_at(text.iter().position(ends).unwrap_or(text.len()));
    let padding = padded.iter().rev().take_while(|byte| **byte == b'=').count();
    let token = &padded[..padded.len() - padding];
    let is_parameter = match rest.trim_ascii_start().first() {
        Some(b'=') => true,
        Some(b'"') if padding > 0 => true,
        _ => token.contains(&b'='),
    };
    (!is_parameter && !token.is_empty()).then(|| of_token(token))
}

/// Decodes up to the first `=`, or to a NUL, where a server in C ends a text. Bytes that are no
/// base64 are skipped, and so are bits that make no byte.
#[cold]
fn of_base64(text: &[u8]) -> Vec<u8> {
    let (mut bits, mut count) = (0_u32, 0);
    let digits = text.iter().take_while(|byte| **byte != b'=').filter_map(|byte| {
        Some(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        })
    });
    let bytes = digits.filter_map(|digit| {
        bits = (bits << 6) | u32::from(digit);
        count = (count + 6) % 8;
        (count < 6).then(|| (bits >> count).to_be_bytes()[3])
    });
    bytes.take_while(|byte| *byte != 0).collect()
}

/// The fewest characters of a signature of a JWT: those of 256 bits.
const SIGNATURE: usize = 43;

/// Returns a token. Of a JWT, which has two dots, the signature does not cover its own spelling: it
/// may have other bytes in it, and bits at its end that make no byte. A shorter last part, as in
/// `team.user.k1`, keeps its end.
fn of_token(token: &[u8]) -> Cow<'_, [u8]> {
    let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    let (Some(_), Some(dot), None) = (dots.next(), dots.next(), dots.next()) else { return token.into() };
    let (signed, signature) = token.split_at(dot + 1);
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let kept = |length: usize| length - usize::from(length >= SIGNATURE && !length.is_multiple_of(4));
    if signature.iter().all(is_plain) {
        return token[..signed.len() + kept(signature.len())].into();
    }
    let urls = signature.iter().map(|byte| match byte {
        b'+' => b'-',
        b'/' => b'_',
        byte => *byte,
    });
    let mut signature: Vec<u8> = urls.filter(is_plain).collect();
    signature.truncate(kept(signature.len()));
    [signed, &signature].concat().into()
}

/// Reads the value of a pair: up to its closing quote, or without quotes up to a space. Some
/// servers keep quotes or escapes, and know no credential that has them.
fn of_cookie(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    let quoted = value.strip_prefix(b"\"").and_then(|value| {
        let mut is_escaped = false;
        let end = value.iter().position(|byte| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        });
        end.map(|end| value[..end].trim_ascii())
    });
    let bare = || value.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let inside = quoted.unwrap_or_else(bare);
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
                header_value(&headers("x-api-key", lines), &"x-api-key".parse().unwrap()).as_deref(),
                Some(&b"k1"[..]),
                "{lines:?}"
            );
        }
        for lines in [&[][..], &[""], &[" ", "\t"], &["k1", "k2"]] {
            assert_eq!(
                header_value(&headers("x-api-key", lines), &"x-api-key".parse().unwrap()).as_deref(),
                None,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn each_spelling_of_credentials_is_one_key() {
        for (key, spellings) in [
            (
                Some(&b"k1"[..]),
                &[
                    &["Bearer k1"][..],
                    &["bearer  k1"],
                    &[" BEARER \t k1 "],
                    &["k1"],
                    &["Bearer k1", "bearer k1", ""],
                    &["Bearer k1 x", "Bearer k1 a=1"],
                    &["Bearer k1,x", "Bearer k1;a=1", "Bearer k1\"x\"", "Bearer k1=", "k1=="],
                ][..],
            ),
            (Some(b"Bearer"), &[&["Bearer"]]),
            (
                Some(b"u:p"),
                &[
                    &["Basic dTpw"],
                    &["basic \t dTpw"],
                    &["BASIC dTpw=", "Basic dTpw==x"],
                    &["Basic d T.p\"w"],
                    &["Basic dTpwA", "Basic dTpwAHg="],
                ],
            ),
            (Some(b"a:b\xfb\xff"), &[&["Basic YTpi+/8="], &["Basic YTpi-_8"], &["Basic YTpi+_9=="]]),
            (
                Some(b"h.p.Ab-_"),
                &[&["Bearer h.p.Ab-_"], &["Bearer h.p.A!b+/"], &["Bearer h.p.Ab-_=", "Bearer h.p.Ab-/"]],
            ),
            (
                Some(b"h.p.0123456789012345678901234567890123456789_-"),
                &[
                    &["Bearer h.p.0123456789012345678901234567890123456789_-A"],
                    &["Bearer h.p.0123456789012345678901234567890123456789_-D="],
                    &["Bearer h.p.0123456789~012345678901234567890123456789/+B"],
                ],
            ),
            (Some(b"h.p.k1"), &[&["Bearer h.p.k1"]]),
            (Some(b"h.p.A.b~"), &[&["Bearer h.p.A.b~"]]),
            (
                None,
                &[
                    &["Digest username=\"u\", nc=1"],
                    &["Digest username = \"u\""],
                    &["Digest username= \"u\""],
                    &["OAuth realm=\"a\",b=\"1\""],
                    &["AWS4-HMAC-SHA256 Credential=a/b, Signature=c"],
                    &["Digest nc=1", "Bearer x"],
                    &["Bearer x", "Digest nc=1"],
                    &["Basic =dTpw", "Bearer x"],
                    &["Bearer ,", "Bearer x"],
                    &["Bearer =="],
                    &["Basic dTpw", "Bearer x"],
                ],
            ),
        ] {
            for lines in spellings {
                let found = headers("authorization", lines);
                assert_eq!(header_value(&found, &AUTHORIZATION).as_deref(), key, "{lines:?}");
                let found = headers("proxy-authorization", lines);
                assert_eq!(header_value(&found, &PROXY_AUTHORIZATION).as_deref(), key, "{lines:?}");
            }
        }
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
            &["sid=k1 a=1", "sid=  k1\ta"],
            &["sid=\"k1\" a=1", "sid=\"k1\"a\"", "sid=\"k\\1\" \"a"],
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
        for (value, key) in [("\"\\\"\"", "\""), ("\"a b\" c", "a b"), ("\"\\\" a", "\"\\\"")] {
            let found = headers("cookie", &[&format!("sid={value}")]);
            assert_eq!(cookie_value(&found, "sid").as_deref(), Some(key.as_bytes()), "{value}");
        }
    }
}
