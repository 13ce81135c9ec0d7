//! Keys whose buckets are in a map.

pub(crate) const STORE: crate::store::Store = crate::store::Store::Map;

#[path = "keyed.rs"]
mod keyed;

// The layer does not know the store. Settlements in a table are in `inline/settled.rs`.
#[cfg(feature = "tower")]
#[path = "delay.rs"]
mod delay;
#[cfg(feature = "tower")]
#[path = "layer.rs"]
mod layer;
#[cfg(feature = "tower")]
#[path = "settle.rs"]
mod settle;

#[cfg(feature = "tower")]
use self::keyed::{InStore, Room};
