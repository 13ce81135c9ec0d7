//! A layer over HTTP and gRPC that limits requests in flight.

mod inflight_layer;
#[cfg(feature = "metrics")]
mod metrics;
mod service;
mod state;
mod stats;
mod unavailable;

pub use inflight_layer::{InflightLayer, InflightLayerBuilder};
pub use service::{InflightFuture, LimitInflight};
pub use state::{Admission, Admitted, Until};
pub use stats::{InflightLayerStats, PriorityStats, prometheus_inflight};
pub use unavailable::Unavailable;
