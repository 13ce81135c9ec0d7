//! The addresses that proxies note: `X-Forwarded-For`, and `Forwarded` (RFC 7239).

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName};

/// A header that each proxy appends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Xff,
    Forwarded,
}

const XFF: HeaderName = HeaderName::from_static("x-forwarded-for");

impl List {
    pub(crate) fn is_in(self, headers: &HeaderMap) -> bool {
        headers.contains_key(self.name())
    }

    fn name(self) -> HeaderName {
        match self {
            List::Xff => XFF,
            List::Forwarded => FORWARDED,
        }
    }

    /// From the last hop to the first, over all lines of the header. `None` is a hop that says no address.
    pub(crate) fn hops(self, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
        let mut lines = headers.get_all(self.name()).iter().rev();
        let mut line: Option<Vec<&[u8]>> = None;
        std::iter::from_fn(move || {
            loop {
                if let Some(hop) = line.as_mut().and_then(Vec::pop) {
                    return Some(match self {
                        List::Xff => std::str::from_utf8(hop)
                            .ok()
                            .and_then(|hop| address(hop.trim_matches([' ', '\t']))),
                        List::Forwarded => forwarded_for(hop),
                    });
                }
                line = Some(split(lines.next()?.as_bytes(), b',', self == List::Forwarded));
            }
        })
    }
}

/// An address, with or without a port; one of version 6 in brackets if there is one.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    // std reads zones, which mean something to one machine only.
    if text.contains('%') {
        return None;
    }
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port).or_else(bare)
}

/// The address of an element of `Forwarded`: `for=192.0.2.1;proto=http`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in split(element, b';', true) {
        let pair = std::str::from_utf8(pair).ok()?.trim_matches([' ', '\t']);
        let Some((name, value)) = pair.split_once('=') else { continue };
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            // Which of the two was meant, nobody can say.
            return None;
        }
    }
    address(&unquoted(found?)?)
}

/// A token as it is, or what is in quotes.
fn unquoted(value: &str) -> Option<String> {
    let Some(rest) = value.strip_prefix('"') else {
        return (!value.contains(['"', '\\'])).then(|| value.to_owned());
    };
    let (mut text, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(text),
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
}

/// The parts between separators; those in quotes do not count, if there are quotes.
fn split(text: &[u8], separator: u8, quotes: bool) -> Vec<&[u8]> {
    let (mut parts, mut from, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if quotes => quoted = !quoted,
            _ if byte == separator && !quoted => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}
