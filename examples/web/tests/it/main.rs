//! The examples as processes, and the layer within axum and tonic, over real sockets.

mod axum;
mod compose;
mod examples;
mod grpc;
mod leaks;
mod readme;
mod ready;
mod support;
