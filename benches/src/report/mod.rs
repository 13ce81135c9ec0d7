//! The page of a run and its plots, written whole from what was measured.

mod compare;
mod found;
mod goals;
mod model;
mod numbers;
mod page;
mod plots;
mod reasons;
mod tables;

use std::fs;
use std::io;
use std::path::Path;

use crate::results::Results;

/// Writes `performance.md` and `performance/*.svg` into `docs`. What there is no data for is left out.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(results: &Results, docs: &Path) -> io::Result<()> {
    let plots = plots::all(results)?;
    fs::create_dir_all(docs.join("performance"))?;
    for plot in &plots {
        fs::write(docs.join(plot.file()), &plot.svg)?;
    }
    fs::write(docs.join("performance.md"), page::page(results, &plots))
}
