//! The report of a run: all numbers as CSV, the plots, and the page with the other runs beside it.

pub mod csv;
pub mod numbers;
mod page;
pub mod plots;
mod write;

pub use page::page;
pub use write::write;
