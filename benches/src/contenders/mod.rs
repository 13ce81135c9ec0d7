//! The limiters that are compared, a file each.

mod all;
mod better_bucket;
mod bucket;
mod dashmap;
mod floor;
mod forms;
mod governor;
mod key;
mod leaky_bucket;
mod limitador;
mod mutex;
mod nothing;
mod one_mutex;
mod ours;
mod parking_lot;
mod pingora_limits;
mod rate_net;
mod ratelimit;
mod ratelock;
mod rwlock_map;
mod tokio_rate_limit;
mod trypema;
mod windows;

pub use all::{
    at_their_cap, floor, forms, keyed, keyed_floor, keyed_windows, one_bucket, one_window, strings,
};
pub use floor::FLOOR;
pub use key::Key;
pub use nothing::Nothing;
pub use ours::OURS;
