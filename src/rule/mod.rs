//! Rules: quotas and windows, their text, and their layout in 64 bits.

pub(crate) mod any_rule;
pub(crate) mod calendar;
pub(crate) mod counts;
pub(crate) mod error;
mod from_text;
pub(crate) mod gate;
pub(crate) mod layout;
pub(crate) mod period;
pub(crate) mod places;
mod proportion;
mod quota_text;
pub(crate) mod rate;
#[cfg(feature = "serde")]
mod serde;
mod utc_offset;
pub(crate) mod window;
mod window_check;
mod window_error;
pub(crate) mod window_layout;
mod window_text;
