//! The shared limits that are compared, a file each.

mod check_then_count;
mod compare_and_set;
mod counter;
mod fleet;
mod gcra;
mod on_redis;
mod ours;

pub use fleet::{Fleet, PROCESSES};
pub use on_redis::{ON_REDIS, on_redis, ours};
pub use ours::Ours;
