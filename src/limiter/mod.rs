//! The public faces.

pub(crate) mod adaptive;
pub(crate) mod adaptive_builder;
pub(crate) mod all_of;
pub(crate) mod batch;
pub(crate) mod blocking;
mod bucket_line;
mod bucket_verbs;
pub(crate) mod builder;
mod decide;
#[cfg(feature = "tower")]
pub(crate) mod decided;
pub(crate) mod inflight_limiter;
pub(crate) mod inflight_limiter_builder;
pub(crate) mod inner;
pub(crate) mod janitor;
pub(crate) mod keeping;
pub(crate) mod key_call;
pub(crate) mod key_flight;
pub(crate) mod key_limit;
mod key_line;
#[cfg(feature = "tower")]
pub(crate) mod keyless;
pub(crate) mod limited;
pub(crate) mod observer;
pub(crate) mod pinned;
#[cfg(feature = "tower")]
pub(crate) mod place;
mod quota_controller;
pub(crate) mod rate_limiter;
pub(crate) mod settings;
pub(crate) mod token_bucket;
#[cfg(feature = "tokio")]
pub(crate) mod tokio;
mod try_acquire;
pub(crate) mod verbs;
pub(crate) mod waiting;
pub(crate) mod window_builder;
pub(crate) mod window_counter;
pub(crate) mod window_key;
pub(crate) mod window_limiter;
mod window_settings;
