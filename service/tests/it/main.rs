//! `tollgate serve` from outside: its process, gRPC and HTTP.

mod cases;
mod client;
mod control_plane;
mod envoy;
mod expect;
mod files;
#[cfg(target_os = "linux")]
mod hostile;
mod load;
mod moves;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod packaging;
mod pages;
mod protobuf;
mod proxies;
mod replicas;
mod reserve;
mod restart;
mod start;
mod walk;
mod xds;
mod yaml;
