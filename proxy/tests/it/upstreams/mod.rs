//! Upstreams over TLS and HTTP/2, and those that are down.
//!
//! The upstreams are servers in this process, and the clients write frames of HTTP/2. A real client
//! and a real server of gRPC run too, if Python has them.

mod grpc;
mod health;
mod http2;
mod resets;
mod tls;
