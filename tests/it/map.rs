//! Keys whose buckets are in a map.

pub(crate) const STORE: crate::store::Store = crate::store::Store::Map;

#[path = "keyed.rs"]
mod keyed;
