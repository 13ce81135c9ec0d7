//! The response to a refused request, over the connection that is kept.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, EXPECT, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};
use http::{Method, Response, StatusCode};
use pingora_core::Result;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tollgate_http::{GrpcForm, Head};

/// The wait that a client without a place is told. The time until one is free is not known.
const WAIT: Duration = Duration::from_secs(1);

/// Returns the response to a request whose key has no place.
#[cold]
pub(crate) fn without_place(head: Head<'_>) -> Response<Bytes> {
    if let Some(form) = GrpcForm::of(head) {
        return form.unavailable(WAIT);
    }
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(RETRY_AFTER, WAIT.as_secs().into());
    response
}

/// Answers a request, whose body is read and dropped for at most `drain`.
pub(crate) async fn answer(session: &mut Session, response: Response<Bytes>, drain: Duration) -> Result<()> {
    let (parts, body) = response.into_parts();
    // Of the status alone.
    let is_bare = parts.status.is_informational()
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let mut head = ResponseHeader::from(parts);
    head.remove_header(&TRANSFER_ENCODING);
    match is_bare {
        true => _ = head.remove_header(&CONTENT_LENGTH),
        false => head.insert_header(CONTENT_LENGTH, body.len())?,
    }
    // A client that waits for `100 Continue` may send its next request in place of the body: pingora
    // closes such a connection, as it does by default where a body is not read.
    let may_skip = session.req_header().headers.contains_key(EXPECT);
    session.set_close_on_response_before_downstream_finish(may_skip);
    session.set_total_drain_timeout(Some(drain));
    let ends = is_bare || body.is_empty() || session.req_header().method == Method::HEAD;
    let is_h2 = matches!(session.as_downstream(), ServerSession::H2(_));
    if ends && is_h2 {
        session.downstream_modules_ctx.response_header_filter(&mut head, true).await?;
        // A client of gRPC takes fields for trailers only if they end the stream.
        if let ServerSession::H2(stream) = session.as_downstream_mut() {
            return stream.write_response_header(Box::new(head), true);
        }
    }
    session.write_response_header(Box::new(head), ends).await?;
    match ends {
        true => Ok(()),
        false => session.write_response_body(Some(body), true).await,
    }
}
