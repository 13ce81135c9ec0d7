//! Limits whose limiter has to be asked, such as one that a fleet shares.

mod at_hand;
mod outage;
mod questions;
mod same;
mod store;
mod tokens;
