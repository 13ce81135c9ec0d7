//! The requests that can be forwarded, by their head.

use http_body::Body;
use hyper::Uri;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Method, Request, StatusCode, Version};

use tollgate_common::net::fields::only_value;

/// The line of a 413.
pub(crate) const TOO_LARGE: &str = "Content too large: the body has more bytes than it may.\n";

/// Returns the host of a request that can be forwarded, if the request names one. An error is the
/// refusal. A body has `most` bytes at most.
pub(crate) fn admitted(
    request: &Request<Incoming>,
    most: Option<u64>,
) -> Result<Option<Authority>, (StatusCode, &'static str)> {
    if request.method() == Method::CONNECT {
        return Err((StatusCode::NOT_IMPLEMENTED, "This proxy opens no tunnels.\n"));
    }
    if !has_known_coding(request.headers()) {
        let line = "Not implemented: the only transfer coding here is chunked, once.\n";
        return Err((StatusCode::NOT_IMPLEMENTED, line));
    }
    if !has_valid_target(request) {
        let line = "Bad request: the target must be a path, or a URL of http or https.\n";
        return Err((StatusCode::BAD_REQUEST, line));
    }
    let line = "Bad request: one valid Host header is needed.\n";
    let host = requested_host(request).map_err(|()| (StatusCode::BAD_REQUEST, line))?;
    // A body of unknown length is counted on its way.
    match most {
        Some(most) if request.body().size_hint().lower() > most => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE))
        }
        _ => Ok(host),
    }
}

/// Returns whether hyper reads the body as it is. hyper decodes `chunked`, and no coding before it.
fn has_known_coding(headers: &HeaderMap) -> bool {
    match only_value(headers, &header::TRANSFER_ENCODING) {
        Some(coding) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        None => !headers.contains_key(header::TRANSFER_ENCODING),
    }
}

/// Returns whether the target has a form of RFC 9112, 3.2 other than that of `CONNECT`.
fn has_valid_target(request: &Request<Incoming>) -> bool {
    let uri = request.uri();
    let is_known = match uri.scheme_str() {
        Some(scheme) => ["http", "https"].contains(&scheme),
        None => uri.authority().is_none(),
    };
    is_known && (uri.path() != "*" || request.method() == Method::OPTIONS)
}

/// Returns the host that a client asked for. A client of HTTP/1.0 need not name one. An error is a
/// request for which RFC 9112, 3.2 wants a 400.
fn requested_host(request: &Request<Incoming>) -> Result<Option<Authority>, ()> {
    let host = match only_value(request.headers(), &header::HOST) {
        Some(host) => Some(Authority::try_from(host.as_bytes()).map_err(drop)?),
        None if request.headers().contains_key(header::HOST) => return Err(()),
        None => None,
    };
    // A whole URL in the request line overrides the header.
    let named = request.version() == Version::HTTP_11 && host.is_none();
    let host = match request.uri().authority() {
        // HTTP/1.1 wants the header all the same.
        Some(_) if named => return Err(()),
        Some(authority) => Some(authority.clone()),
        None => host,
    };
    match host {
        Some(host) if !is_host(&host) => Err(()),
        None if request.version() > Version::HTTP_10 => Err(()),
        host => Ok(host),
    }
}

/// Returns whether this is the name of a host, perhaps with a port, and without a user's name. A
/// list would be taken for the hosts of several proxies in `X-Forwarded-Host`.
fn is_host(authority: &Authority) -> bool {
    let name = authority.host();
    if name.contains(',') {
        return false;
    }
    let Some(rest) = authority.as_str().strip_prefix(name).filter(|_| !name.is_empty()) else { return false };
    let Some(port) = rest.strip_prefix(':') else { return rest.is_empty() };
    port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok())
}

/// Returns the target without a scheme and a host.
pub(crate) fn origin_form(uri: Uri) -> Uri {
    if uri.authority().is_none() {
        return uri;
    }
    let Some(path) = uri.into_parts().path_and_query else { return Uri::default() };
    match path.as_str() {
        // The path of a URL without one is empty.
        "/" => Uri::default(),
        // A URL may have a query without a path.
        query if query.starts_with('?') => PathAndQuery::try_from(format!("/{query}")).unwrap_or(path).into(),
        _ => path.into(),
    }
}
