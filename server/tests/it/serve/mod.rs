//! `tollgate serve` from outside: its process, gRPC and HTTP.

mod cases;
mod client;
mod envoy;
mod expect;
mod packaging;
mod protobuf;
mod proxies;
mod scripts;
