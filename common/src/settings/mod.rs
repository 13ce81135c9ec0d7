//! The text forms of settings that the servers share, and the sentences about mistakes in them.

pub mod error;
pub mod file;
pub mod values;
