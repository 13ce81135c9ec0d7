//! The measurements, and how thorough a run is.

pub mod at_hand;
pub mod attempts;
mod effort;
pub mod outage;
pub mod stores;

pub use effort::Effort;
