//! The layer of `tollgate` over a shared limiter.

pub(crate) mod ask;
pub(crate) mod shared_key;
