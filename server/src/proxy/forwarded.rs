//! The headers that tell an upstream of the client, and those that are for one connection only.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, Version};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The hop from a peer to this proxy.
pub(crate) struct Hop<'a> {
    pub(crate) peer: IpAddr,
    /// The client's address: the peer's, unless a trusted proxy says another.
    pub(crate) client: IpAddr,
    /// The peer is a proxy whose headers are believed.
    pub(crate) trusted: bool,
    pub(crate) is_tls: bool,
    /// The host that the client asked for.
    pub(crate) host: Option<&'a Authority>,
    /// The port of our listener.
    pub(crate) port: u16,
}

/// Tells of the hop and of the host, and drops claims of a peer that is not trusted.
pub(crate) fn set(headers: &mut HeaderMap, hop: &Hop<'_>) {
    drop_claims(headers, hop.trusted);
    let proto = if hop.is_tls { "https" } else { "http" };
    let node = if hop.peer.is_ipv6() { format!("\"[{}]\"", hop.peer) } else { hop.peer.to_string() };
    // There is no quote or backslash in an `Authority`, so quoting it needs no escapes.
    let host = hop.host.map_or_else(String::new, |host| format!(";host=\"{host}\""));
    // A field line of its own: a list that is there may have an open quote.
    headers.append(header::FORWARDED, value(&format!("for={node};proto={proto}{host}")));
    append_to_list(headers, X_FORWARDED_FOR, &hop.peer.to_string());
    set_unless_said(headers, HeaderName::from_static("x-forwarded-proto"), Some(proto));
    set_unless_said(headers, HeaderName::from_static("x-forwarded-host"), hop.host.map(Authority::as_str));
    set_unless_said(headers, HeaderName::from_static("x-forwarded-port"), Some(&hop.port.to_string()));
    set_unless_said(headers, X_REAL_IP, Some(&hop.client.to_string()));
    // The host of a URL in the request line, if there is one; or the header that `Connection` has named.
    if let Some(host) = hop.host {
        headers.insert(header::HOST, value(host.as_str()));
    }
}

/// Removes the headers of a client that is not trusted; and of every client those with underscores,
/// which many upstreams take for the same with hyphens.
fn drop_claims(headers: &mut HeaderMap, trusted: bool) {
    let is_claim = |name: &&HeaderName| {
        let hyphens = name.as_str().replace('_', "-");
        let tells = hyphens == "forwarded" || hyphens == "x-real-ip" || hyphens.starts_with("x-forwarded-");
        tells && (!trusted || hyphens != name.as_str())
    };
    let claims: Vec<HeaderName> = headers.keys().filter(is_claim).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

/// Sets a header that a trusted peer has not said just once.
fn set_unless_said(headers: &mut HeaderMap, name: HeaderName, own: Option<&str>) {
    if headers.get_all(&name).iter().count() == 1 {
        return;
    }
    match own {
        Some(own) => drop(headers.insert(name, value(own))),
        None => drop(headers.remove(name)),
    }
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("addresses, authorities and numbers are visible ASCII")
}

/// Appends to a comma-separated header, on one line: some readers look at one only.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: &str) {
    let mut list: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    list.push(item.as_bytes());
    let list = HeaderValue::from_bytes(&list.join(&b", "[..])).expect("made of header values and ASCII");
    headers.insert(name, list);
}

/// The headers that RFC 9110, 7.6.1 says are for one connection.
const ONE_CONNECTION: &str = "connection,keep-alive,proxy-connection,te,trailer,transfer-encoding,upgrade,\
                              proxy-authenticate,proxy-authorization";

/// Drops the trailers that tell of a connection or of the body's length, which trailers must not
/// (RFC 9110, 6.5.1): a client of HTTP/2 would see a malformed response.
pub(crate) fn drop_from_trailers(trailers: &mut HeaderMap) {
    for name in ONE_CONNECTION.split(',').chain(["content-length"]) {
        trailers.remove(name);
    }
}

/// Drops the headers that are for one connection only: those that RFC 9110, 7.6.1 lists, and those
/// that `Connection` names; and those that other servers may take for a length. The upgrade to a
/// WebSocket stays, and `TE: trailers`.
pub(crate) fn drop_hop_by_hop(parts: &mut Parts) {
    // To servers that take an underscore for a hyphen, these tell another length of the body.
    const LENGTHS: &str = "content_length,transfer_encoding";
    let is_websocket = is_websocket(parts);
    let headers = &mut parts.headers;
    // A length beside a transfer coding is a lie about the body, and the means of request smuggling.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let trailers = has_token(headers, &header::TE, "trailers");
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let names = lines.chain([ONE_CONNECTION, LENGTHS]).flat_map(|line| line.split(','));
    let names: Vec<HeaderName> = names.filter_map(|name| name.trim().parse().ok()).collect();
    for name in names {
        headers.remove(name);
    }
    if is_websocket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether a request is one for a WebSocket (RFC 6455, 4.1).
fn is_websocket(parts: &Parts) -> bool {
    let headers = &parts.headers;
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has_token(headers, &header::CONNECTION, "upgrade")
        && has_token(headers, &header::UPGRADE, "websocket")
        && headers.contains_key(header::SEC_WEBSOCKET_KEY)
        && headers.contains_key(header::SEC_WEBSOCKET_VERSION)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}
