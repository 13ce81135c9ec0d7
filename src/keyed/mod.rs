//! Many buckets: where they are kept, and how keys come and go.

pub(crate) mod demotion;
pub(crate) mod entry;
pub(crate) mod hot;
pub(crate) mod id;
pub(crate) mod idle;
pub(crate) mod key;
pub(crate) mod keyspace;
pub(crate) mod overflow;
pub(crate) mod protocol;
pub(crate) mod removals;
pub(crate) mod ring;
pub(crate) mod store;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod verbs;
