//! The state of a limiter as bytes: saved, and restored after a restart.

pub(crate) mod bytes;
pub(crate) mod key_bytes;
mod parts;
mod saved;
