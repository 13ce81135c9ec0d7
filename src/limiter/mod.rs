//! The public faces.

pub(crate) mod all_of;
pub(crate) mod ask;
pub(crate) mod asked;
mod batch;
pub(crate) mod builder;
mod decide;
pub(crate) mod hook;
pub(crate) mod inner;
pub(crate) mod janitor;
pub(crate) mod key_bytes;
pub(crate) mod key_call;
mod key_line;
pub(crate) mod keyed;
mod later;
pub(crate) mod limit;
pub(crate) mod limited;
mod one_bucket;
pub(crate) mod options;
mod owned;
mod patient;
pub(crate) mod pinned;
pub(crate) mod plan;
pub(crate) mod rate_limiter;
pub(crate) mod rule;
mod saved;
mod saved_parts;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod state_bytes;
mod task;
pub(crate) mod ticket;
#[cfg(feature = "tokio")]
mod tokio;
pub(crate) mod verbs;
pub(crate) mod waiting;
