//! Requests and responses that two parsers could take apart in different ways.
//!
//! A request of `requests` or `http2` is refused, or the upstream sees the request that a strict
//! parser sees. It is written so that no parser can see another request. A response of `responses`
//! becomes an error, or reaches the client as one response. After each, other clients get their own
//! responses.
//!
//! The upstream of these tests records every byte. It is asked again over each connection that a
//! request has left open. So no bytes can wait there for the next request.

mod http2;
mod requests;
mod responses;
mod upstream;
mod verdict;
