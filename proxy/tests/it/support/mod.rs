//! The proxy as a process, its clients and its upstreams, its files and its numbers.

mod files;
mod http2_upstream;
mod metrics;
mod process;

pub(crate) use files::{Reloaded, check_text};
pub(crate) use http2_upstream::{Asked, Http2Upstream, trailers};
pub(crate) use metrics::read_event;
pub(crate) use process::{PROGRAM, Proxy, tollgate};
pub(crate) use tollgate_common::testing::{
    Authority, Certificate, Ended, Folder, Frames, Http2, block_on, call, frames, get, next, spawn, until,
};
pub(crate) use tollgate_testing::upstream::{Down, Held, OK, Upstream, deaf, refusing, serve};
pub(crate) use tollgate_testing::wire::{Connection, Message, PATIENCE};

/// A request without a body.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// An upgrade with the key of RFC 6455, 1.3. [`SWITCHING`] has the answer to this key.
pub(crate) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
pub(crate) const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
