//! Many buckets: where they are kept, and how keys come and go.

pub(crate) mod entry;
pub(crate) mod hot;
pub(crate) mod key;
pub(crate) mod keyspace;
#[cfg_attr(all(feature = "huge-pages", target_os = "linux", not(any(loom, shuttle))), path = "huge_pages.rs")]
pub(crate) mod memory;
pub(crate) mod overflow;
pub(crate) mod removals;
pub(crate) mod ring;
pub(crate) mod table;
