//! The limiters that are compared, a file each.

mod mutex;
mod ours;
mod rwlock_map;

pub use mutex::MutexBucket;
pub use ours::Pinned;
pub use rwlock_map::RwLockMap;
