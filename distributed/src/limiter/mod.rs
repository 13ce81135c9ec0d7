//! The public limiter: its keys, its calls, its background task and its counts.

pub(crate) mod all_of;
pub(crate) mod ask;
mod at_hand;
pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod counters;
pub(crate) mod distributed_limiter;
mod due;
pub(crate) mod flush;
mod joint;
pub(crate) mod keeper;
pub(crate) mod plan;
pub(crate) mod report;
mod rules;
mod series;
pub(crate) mod shared;
pub(crate) mod shared_rule;
pub(crate) mod slot;
pub(crate) mod slots;
pub(crate) mod sourced;
pub(crate) mod stats;
pub(crate) mod waiting;
mod windows;
