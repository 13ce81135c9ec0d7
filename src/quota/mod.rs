//! Quotas, and their layout in 64 bits.

pub(crate) mod error;
pub(crate) mod layout;
pub(crate) mod period;
pub(crate) mod rate;
#[cfg(feature = "serde")]
mod serde;
