//! `tollgate serve` from outside: its process, gRPC and HTTP.

mod cases;
mod client;
mod envoy;
mod expect;
mod files;
#[cfg(target_os = "linux")]
mod hostile;
mod load;
mod packaging;
mod pages;
mod protobuf;
mod proxies;
mod restart;
mod start;
mod walk;
