//! Headers that tell the upstream of the client, and headers that are for one connection only.
//!
//! A request is asked for few names, and each of its own names is looked at once. The values that
//! are written here share one piece of memory.

use std::fmt::Write;
use std::net::IpAddr;

use bytes::Bytes;
use hyper::Version;
use hyper::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;

use tollgate_common::net::fields::only_value;

/// Headers of one connection (RFC 9110, 7.6.1), credentials for this proxy, and names with
/// underscores. Some servers take these names for a length of the body.
const OF_ONE_CONNECTION: [&str; 13] = [
    "connection",
    "content_length",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "transfer_encoding",
    "upgrade",
];

/// Headers by which servers and frameworks learn of a client or of the target of its request. They
/// believe them, and so does an upstream. So are all that begin with `x-forwarded-`.
const CLAIMS: [&str; 17] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "true-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The connection that a request came over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop<'a> {
    /// The address at the other end.
    pub(crate) peer: IpAddr,
    /// The address of the client, by the headers if the peer is trusted.
    pub(crate) client: IpAddr,
    /// Whether the proxy believes the headers of the peer.
    pub(crate) trusted: bool,
    pub(crate) is_tls: bool,
    /// The host that the request is for.
    pub(crate) host: Option<&'a Authority>,
    /// The port of the listener.
    pub(crate) port: &'a HeaderValue,
}

/// Sets the forwarding headers of a request.
///
/// The headers of a peer that is not trusted are replaced. The lists of a trusted peer are
/// continued, and its other headers stay if each has one value. `X-Real-IP` is the address of the
/// client in any case. Names with another sign in the place of `-` are removed in any case: to
/// CGI, `X_Forwarded_For` is `X-Forwarded-For`.
///
/// [`drop_hop_by_hop`] must come first. Otherwise `Connection` may name these headers.
pub(crate) fn set(headers: &mut HeaderMap, hop: &Hop<'_>) {
    // No memory, unless there are any.
    let claims: Vec<HeaderName> = headers.keys().filter(|name| is_claim(name)).cloned().collect();
    for name in &claims {
        if !hop.trusted || name.as_str().contains(|c: char| c != '-' && !c.is_ascii_alphanumeric()) {
            headers.remove(name);
        }
    }
    headers.reserve(8);
    let Told { peer, client, proto, host, forwarded } = Told::of(hop);
    let kept = hop.trusted && !claims.is_empty();
    append_to_list(headers, X_FORWARDED_FOR, &peer);
    for (name, value) in [
        (X_FORWARDED_PROTO, Some(proto)),
        (X_FORWARDED_HOST, host),
        (X_FORWARDED_PORT, Some(hop.port.clone())),
    ] {
        let is_told = |value: &HeaderValue| !value.is_empty();
        if !(kept && only_value(headers, &name).is_some_and(is_told)) {
            match value {
                Some(value) => drop(headers.insert(name, value)),
                None => drop(headers.remove(name)),
            }
        }
    }
    headers.insert(X_REAL_IP, client);
    headers.append(header::FORWARDED, forwarded);
}

/// The values that tell of a client.
struct Told {
    peer: HeaderValue,
    client: HeaderValue,
    proto: HeaderValue,
    host: Option<HeaderValue>,
    forwarded: HeaderValue,
}

impl Told {
    /// The form of `Forwarded` is that of RFC 7239, 4 and 6. An authority has no quote and no
    /// backslash. The other values are parts of it.
    fn of(hop: &Hop<'_>) -> Told {
        let peer = hop.peer.to_canonical();
        let client = if hop.trusted { hop.client.to_canonical() } else { peer };
        let proto = if hop.is_tls { "https" } else { "http" };
        let (open, close) = if peer.is_ipv6() { ("for=\"[", "]\"") } else { ("for=", "") };
        let length = |host: &Authority| host.as_str().len();
        let mut text = String::with_capacity(128 + hop.host.map_or(0, length));
        text.push_str(open);
        let of_peer = text.len()..{
            // A write to memory does not fail.
            let _ = write!(text, "{peer}");
            text.len()
        };
        for part in [close, ";proto=", proto] {
            text.push_str(part);
        }
        let mut of_host = None;
        if let Some(host) = hop.host {
            text.push_str(";host=\"");
            of_host = Some(text.len()..text.len() + length(host));
            text.push_str(host.as_str());
            text.push('"');
        }
        let end = text.len();
        let mut of_client = of_peer.clone();
        if client != peer {
            let _ = write!(text, "{client}");
            of_client = end..text.len();
        }
        let text = Bytes::from(text);
        Told {
            peer: value(text.slice(of_peer)),
            client: value(text.slice(of_client)),
            proto: HeaderValue::from_static(proto),
            host: of_host.map(|at| value(text.slice(at))),
            forwarded: value(text.slice(..end)),
        }
    }
}

/// Returns whether a header of this name may claim the origin or the target of a request.
fn is_claim(name: &HeaderName) -> bool {
    let bytes = name.as_str().as_bytes();
    if !matches!(bytes.first(), Some(b'c' | b'f' | b't' | b'x')) {
        return false;
    }
    let reads_as = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    let begins = |other: &str| {
        bytes.len() >= other.len() && bytes.iter().zip(other.bytes()).all(|(a, b)| reads_as(*a) == b)
    };
    begins("x-forwarded-") || CLAIMS.iter().any(|claim| claim.len() == bytes.len() && begins(claim))
}

/// Appends to a list, on one line: some parsers read one line only.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: &HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(list) => drop(list.insert(item.clone())),
        Entry::Occupied(mut list) => {
            let lines = list.iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty());
            let lines: Vec<&[u8]> = lines.chain([item.as_bytes()]).collect();
            list.insert(value(lines.join(&b", "[..])));
        }
    }
}

fn value(bytes: impl Into<Bytes>) -> HeaderValue {
    HeaderValue::from_maybe_shared(bytes.into()).expect("made of header values and visible ASCII")
}

/// The name of this proxy in `Via` (RFC 9110, 7.6.3).
pub(crate) struct Via {
    name: String,
    /// The element for a message of HTTP/1.1.
    usual: HeaderValue,
}

impl Via {
    /// The settings have names of visible ASCII only.
    pub(crate) fn new(name: String) -> Via {
        let usual = value(format!("1.1 {name}"));
        Via { name, usual }
    }

    /// Returns whether a message has passed here.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        tokens(headers, &header::VIA).any(|element| {
            let mut words = element.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.nth(1) == Some(self.name.as_bytes())
        })
    }

    /// Appends the element of this proxy for a message of a version.
    pub(crate) fn append(&self, headers: &mut HeaderMap, version: Version) {
        let other = |version| Some(value(format!("{version} {}", self.name)));
        let other = match version {
            Version::HTTP_10 => other("1.0"),
            Version::HTTP_2 => other("2.0"),
            _ => None,
        };
        append_to_list(headers, header::VIA, other.as_ref().unwrap_or(&self.usual));
    }
}

/// Drops the trailers about a connection or the length of the body. Trailers must not have them
/// (RFC 9110, 6.5.1): a client of HTTP/2 would see a malformed response.
pub(crate) fn drop_from_trailers(trailers: &mut HeaderMap) {
    for name in OF_ONE_CONNECTION {
        trailers.remove(name);
    }
    trailers.remove(header::CONTENT_LENGTH);
}

/// Drops the same from the trailers of a request, and each name by which a head tells of the
/// client, of the target or of credentials. Some upstreams merge trailers into the head (RFC 9110,
/// 6.5.1).
pub(crate) fn drop_from_upload(trailers: &mut HeaderMap) {
    drop_from_trailers(trailers);
    for name in [header::AUTHORIZATION, header::COOKIE, header::HOST, header::VIA] {
        trailers.remove(name);
    }
    let claims: Vec<HeaderName> = trailers.keys().filter(|name| is_claim(name)).cloned().collect();
    for name in claims {
        trailers.remove(name);
    }
}

/// Drops the headers for one connection, and those that `Connection` names.
///
/// `TE: trailers` stays, and so do `Connection` and `Upgrade` of a WebSocket handshake. Headers for
/// all recipients stay if `Connection` names them: `Host`, `Via` and the forwarding headers.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let is_of_one = |name: &&HeaderName| OF_ONE_CONNECTION.contains(&name.as_str());
    // No memory, unless there are any.
    let found: Vec<HeaderName> = headers.keys().filter(is_of_one).cloned().collect();
    if found.is_empty() {
        return;
    }
    // The coding overrides the length (RFC 9112, 6.3).
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let asks_for_websocket = has_token(headers, &header::CONNECTION, "upgrade")
        && has_token(headers, &header::UPGRADE, "websocket");
    let takes_trailers = has_token(headers, &header::TE, "trailers");

    let tokens = tokens(headers, &header::CONNECTION);
    let named: Vec<HeaderName> = tokens.filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
    for name in named {
        if name != header::HOST && name != header::VIA && !is_claim(&name) {
            headers.remove(name);
        }
    }
    for name in found {
        headers.remove(name);
    }

    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if asks_for_websocket
        && headers.contains_key(header::SEC_WEBSOCKET_KEY)
        && headers.contains_key(header::SEC_WEBSOCKET_VERSION)
    {
        keep_upgrade(headers);
    }
}

/// Sets the headers of one connection by which it becomes a WebSocket.
pub(crate) fn keep_upgrade(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Writes the length of the headers anew, or drops it: some parsers take `010` for 8.
pub(crate) fn tell_length(headers: &mut HeaderMap, length: Option<u64>) {
    let Some(told) = headers.get(header::CONTENT_LENGTH) else { return };
    let is_plain = told.as_bytes() == b"0" || !told.as_bytes().starts_with(b"0");
    if is_plain && length.is_some() && content_length(headers) == length {
        return;
    }
    match length {
        Some(length) => drop(headers.insert(header::CONTENT_LENGTH, length.into())),
        None => drop(headers.remove(header::CONTENT_LENGTH)),
    }
}

/// Returns the length in the headers, if it is one number.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    let digits = only_value(headers, &header::CONTENT_LENGTH)?.to_str().ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Joins the cookies into one field line for an upstream of HTTP/1.1 (RFC 9113, 8.2.3). A client of
/// HTTP/2 may split them.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1 {
        let joined = value(lines.join(&b"; "[..]));
        headers.insert(header::COOKIE, joined);
    }
}

pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Returns the items of a list of tokens, from all its lines.
pub(super) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests;
