//! One limit for a whole fleet: the buckets of `tollgate`, shared through a store.

mod credits;
mod store;

pub use credits::bucket::{Amount, Answer, Bucket};
pub use credits::invalid_spec::InvalidSpec;
pub use credits::spec::Spec;
pub use store::error::{StoreError, StoreErrorKind};
pub use store::memory::MemoryStore;
pub use store::op::{MAX_KEY, Op, Store};
