//! The scaffolding of the tests of all crates.
//!
//! It has plain integers and traits, and names no crate of the workspace. The feature `wire` is
//! for tests with sockets.

mod cases;
mod hash;
mod nothing;
mod random;
pub mod reference;
mod spans;
#[cfg(feature = "wire")]
pub mod upstream;
#[cfg(feature = "wire")]
pub mod wire;

pub use cases::{cases, size};
pub use hash::{Plain, Twin};
pub use nothing::Nothing;
pub use random::Random;
pub use spans::{DAY, HOUR, QUOTAS, SECOND, ns, quota_numbers, quota_text};
