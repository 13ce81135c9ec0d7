//! What a user asks for, and how it fits into 64 bits.

pub(crate) mod layout;
pub(crate) mod rate;
#[cfg(feature = "serde")]
mod serde;
