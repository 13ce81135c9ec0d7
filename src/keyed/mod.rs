//! Many buckets: their stores, and how keys come and go.
//!
//! The life of a key in the map (a table slot has a [picture of its own](table)):
//!
//! ```text
//!   no entry <--------------------------------------------- removed
//!      |                                                       ^
//!      | KeyEntry::enter_map                                   | KeyEntry::remove_sealed,
//!      v                                                       | Keyspace::clear, evict_idle
//!   uncharged --- seal_if_idle, seal -----------------------> sealed
//!      |                                                       ^ ^
//!      | Engine::charge                                        | |
//!      v                                                       | |
//!   charged ----- seal (remove, clear) ------------------------+ |
//!      |   ^                                                     |
//!      |   | protocol::acquire                                   |
//!      v   |                                                     |
//!   idle -------- seal_if_idle (evict), seal (remove, clear) ----+
//! ```
//!
//! A charged bucket is idle after it has been full for the eviction grace, or with no place in use:
//! no function makes that step. A key without room has no entry, and shares an [overflow
//! bucket](overflow).

pub(crate) mod attempt;
pub(crate) mod entry;
pub(crate) mod id;
pub(crate) mod idle;
pub(crate) mod in_line;
pub(crate) mod key;
pub(crate) mod keyspace;
pub(crate) mod lines;
pub(crate) mod moves;
pub(crate) mod overflow;
pub(crate) mod protocol;
pub(crate) mod removals;
pub(crate) mod ring;
pub(crate) mod same_hash;
pub(crate) mod saved;
pub(crate) mod settlement;
mod slices;
pub(crate) mod store;
pub(crate) mod sweep;
pub(crate) mod table;
