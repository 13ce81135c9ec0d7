//! The limiter in virtual time: tokio's clock is paused, so that it leaps to the next timer.

mod bounds;
mod breaker;
mod counts;
mod disorder;
mod fleet;
mod gates;
mod joint;
mod lanes;
mod matrix;
mod outage;
mod verbs;
mod window_calls;
mod windows;
mod world;

#[cfg(all(feature = "http", feature = "sqlite"))]
#[path = "../layer/mod.rs"]
mod layer;

// The cells of the matrix are common to this clock and to real servers.
#[path = "../matrix/mod.rs"]
mod cells;
// The fleet is also that of the benchmarks, which have these alone.
use cells::{granted, ideal, random};
