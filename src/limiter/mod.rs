//! The public types, as `RateLimiter`, `Limit`, `Pinned` and `Ask`, with their verbs.

pub(crate) mod all_of;
pub(crate) mod ask;
pub(crate) mod asked;
pub(crate) mod builder;
mod call;
mod decide;
pub(crate) mod hook;
pub(crate) mod inner;
pub(crate) mod janitor;
pub(crate) mod keyed;
pub(crate) mod limit;
mod one_bucket;
mod owned;
pub(crate) mod pinned;
pub(crate) mod rate_limiter;
pub(crate) mod rule;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod verbs;
pub(crate) mod wait;
