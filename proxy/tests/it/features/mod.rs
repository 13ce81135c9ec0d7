//! The features of `tollgate`: TLS, HTTP/2, WebSockets, Unix sockets, PROXY headers, keys, reloads,
//! logs and exit codes.

mod check;
mod exempt;
mod forwarding;
mod http2;
mod keys;
mod large_bodies;
mod log;
mod prefixes;
mod proxy_protocol;
mod refusals;
mod reload;
mod reread;
mod restart;
mod start;
mod stopping;
mod tls;
mod unix;
mod upstreams;
mod websocket;
