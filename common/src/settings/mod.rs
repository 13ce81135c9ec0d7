//! Settings: one table of them, its sources, and the sentences about mistakes.

pub mod error;
pub mod file;
pub mod given;
pub mod options;
pub mod table;
pub mod toml_file;
pub mod values;
