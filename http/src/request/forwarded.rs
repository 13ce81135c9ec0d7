//! The addresses that proxies note: `X-Forwarded-For`, and `Forwarded` (RFC 7239).
//!
//! *Invariant*: text of the client changes no element that a proxy appended, because both lists are
//! read from the right. All field lines are one list (RFC 9110, 5.3), the last line first. A proxy
//! appends its element after a comma or on a line of its own, so all text of the client is left of
//! it.
//!
//! In `X-Forwarded-For` a comma ends an element, whatever stands beside it. In `Forwarded` a comma
//! may also stand in a quoted string, and the client may have opened a quote that it does not
//! close. A reader from the left would then take the proxy's element for a part of the client's
//! string. From the right each byte of a well-formed element has one reading:
//!
//! * A value that ends in a quote is a quoted string, any other is a token.
//! * A quoted string begins at the nearest quote that no backslash precedes: its own opening quote
//!   follows `=`, and each quote inside follows a backslash.
//! * A name or token has no quote, `=`, semicolon, comma or space: such a byte stands before it.
//!
//! The reading of an element thus ends at its own comma, or where its line begins. A list of
//! well-formed elements reads the same from both ends. An element that is not well formed ends the
//! walk at the hop before it. So does an empty one: it is not skipped, since a hop wrote it.
//!
//! Checked by `no_text_of_a_client_hides_an_element_of_a_proxy` and the fuzz target `headers`.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName};

/// A header that lists the hops of a request: each proxy appends its peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopList {
    /// `X-Forwarded-For`, which most proxies write.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

const XFF: HeaderName = HeaderName::from_static("x-forwarded-for");

impl HopList {
    pub(crate) fn is_in(self, headers: &HeaderMap) -> bool {
        headers.contains_key(self.name())
    }

    fn name(self) -> HeaderName {
        match self {
            HopList::XForwardedFor => XFF,
            HopList::Forwarded => FORWARDED,
        }
    }

    /// Returns the hops from the last to the first, over all lines of the header. `None` is a hop
    /// without an address, which ends the walk.
    pub(crate) fn hops(self, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
        let mut lines = headers.get_all(self.name()).iter().rev();
        let mut rest: Option<&[u8]> = None;
        std::iter::from_fn(move || {
            let text = match rest.take() {
                Some(text) => text,
                None => lines.next()?.as_bytes(),
            };
            let element = match self {
                HopList::XForwardedFor => Some(last_node(text)),
                HopList::Forwarded => last_element(text),
            };
            let Some((node, before)) = element else { return Some(None) };
            rest = before;
            Some(std::str::from_utf8(&node).ok().and_then(address))
        })
    }
}

/// The node that the last element of a list names, and the text before its comma, if there is one.
type Last<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

/// Reads the last element of `X-Forwarded-For`.
fn last_node(text: &[u8]) -> Last<'_> {
    let comma = text.iter().rposition(|byte| *byte == b',');
    let node = comma.map_or(text, |at| &text[at + 1..]);
    (Cow::Borrowed(node.trim_ascii()), comma.map(|at| &text[..at]))
}

/// Parses an address, with or without a port. An IPv6 address with a port is in brackets.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    // std parses zones, which have a meaning on one machine only.
    if text.contains('%') {
        return None;
    }
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port).or_else(bare)
}

/// Reads the last element of `Forwarded`, such as `for=192.0.2.1;proto=http`. Returns its node, and
/// the text before its comma if there is one.
///
/// The node is the value of `for`, empty if no pair names one. `None` if the element is not well
/// formed, or has two pairs of `for`.
///
/// Pairs may be missing, as in the grammar. Spaces around semicolons are not in the grammar, but
/// some proxies write them; they move no boundary.
fn last_element(text: &[u8]) -> Option<Last<'_>> {
    let (mut rest, mut node) = (text.trim_ascii_end(), None);
    loop {
        if !matches!(rest.last(), None | Some(b',' | b';')) {
            let Pair { name, value, before } = last_pair(rest)?;
            if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
                return None;
            }
            rest = before.trim_ascii_end();
        }
        match rest.split_last() {
            Some((b';', before)) => rest = before.trim_ascii_end(),
            Some((b',', before)) => return Some((node.unwrap_or_default(), Some(before))),
            Some(_) => return None,
            None => return Some((node.unwrap_or_default(), None)),
        }
    }
}

/// A pair, its value without quotes, and the text before it.
struct Pair<'a> {
    name: &'a [u8],
    value: Cow<'a, [u8]>,
    before: &'a [u8],
}

/// Reads the pair at the end of a text.
fn last_pair(text: &[u8]) -> Option<Pair<'_>> {
    let (value, before) = match text.strip_suffix(b"\"") {
        Some(text) => {
            let opening = text
                .iter()
                .enumerate()
                .rposition(|(at, byte)| *byte == b'"' && (at == 0 || text[at - 1] != b'\\'))?;
            (unescaped(&text[opening + 1..])?, &text[..opening])
        }
        None => {
            let (before, value) = last_token(text)?;
            (Cow::Borrowed(value), before)
        }
    };
    let (before, name) = last_token(before.strip_suffix(b"=")?)?;
    Some(Pair { name, value, before })
}

/// Splits a token off the end of a text (RFC 9110, 5.6.2). `None` if there is none.
fn last_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = text.iter().rposition(|byte| !is_token(*byte)).map_or(0, |at| at + 1);
    (start < text.len()).then(|| text.split_at(start))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the text between the quotes of a quoted string (RFC 9110, 5.6.4), of which each quote is
/// preceded by a backslash. `None` if such a backslash is itself escaped, or the last one escapes
/// nothing. A field line has no control characters but tabs, so any other byte is allowed.
fn unescaped(inside: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !inside.contains(&b'\\') {
        return Some(Cow::Borrowed(inside));
    }
    let (mut text, mut bytes) = (Vec::with_capacity(inside.len()), inside.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => text.push(*bytes.next()?),
            _ => text.push(*byte),
        }
    }
    Some(Cow::Owned(text))
}
