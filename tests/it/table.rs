//! Keys whose buckets are in a fixed table.

pub(crate) const STORE: crate::store::Store = crate::store::Store::Table;

#[path = "keyed.rs"]
mod keyed;
