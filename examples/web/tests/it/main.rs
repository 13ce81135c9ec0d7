//! The examples as processes, and the layer within axum and tonic, over real sockets.

mod axum;
mod cache;
mod compose;
mod cors;
mod examples;
mod grpc;
mod inflight;
mod leaks;
mod ready;
mod support;
mod telemetry;
