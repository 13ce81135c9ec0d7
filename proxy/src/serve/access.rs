//! The access log's line of a request.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode, Version};
use tokio::time::Instant;

use crate::forward::bodies::End;

/// The line of a request in the access log, written when this value is dropped.
pub(crate) struct Line {
    began: Instant,
    client: IpAddr,
    method: Method,
    target: String,
    version: Version,
    /// The status of the response, or `None` if the client left before there was a response.
    pub(crate) status: Option<StatusCode>,
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) end: End,
    /// Bytes of the response's body.
    pub(crate) bytes: u64,
}

impl Line {
    pub(crate) fn of(request: &Request<Incoming>, client: IpAddr) -> Line {
        let (began, method, version) = (Instant::now(), request.method().clone(), request.version());
        let (target, end) = (target(request), End::Dropped);
        Line { began, client, method, target, version, status: None, upstream: None, end, bytes: 0 }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Line { began, client, method, target, version, status, upstream, end, bytes } = self;
        let (status, upstream) = (status.map(|status| status.as_u16()), upstream.as_deref());
        let duration_ms = began.elapsed().as_micros() as f64 / 1e3;
        tracing::info!(
            %client, %method, target, ?version, status, upstream, bytes, ?end, duration_ms, "request"
        );
    }
}

/// Returns the target of a request in printable ASCII. Other bytes are percent-encoded, since some
/// of them are commands to a terminal.
fn target(request: &Request<Incoming>) -> String {
    let uri = request.uri();
    let target = match uri.path_and_query() {
        // HTTP/2 sends the host apart from the target.
        Some(path) if request.version() == Version::HTTP_2 => path.to_string(),
        _ => uri.to_string(),
    };
    let mut printable = String::with_capacity(target.len());
    for byte in target.bytes() {
        match byte {
            b'!'..=b'~' => printable.push(char::from(byte)),
            _ => printable += &format!("%{byte:02X}"),
        }
    }
    printable
}
