//! The page and its plots, from the CSV files of all parts.

mod plots;
mod tables;
mod write;

pub use write::{PAGE, data, differs, replace, write};
