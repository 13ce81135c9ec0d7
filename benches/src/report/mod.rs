//! The report of a run: all numbers as CSV, the plots, and the page with the other runs beside it.

pub mod csv;
pub mod numbers;
mod page;
pub mod plots;

use std::fs;
use std::io;
use std::path::Path;

pub use self::page::page;
use crate::results::Results;

/// tollgate in its default form.
const OURS: &str = "tollgate";

/// Writes `performance/DATE.csv`, `performance/*.svg` and the page into `folder`. A scenario
/// without data is left out.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(results: &Results, folder: &Path) -> io::Result<()> {
    let data = folder.join("performance");
    fs::create_dir_all(&data)?;
    for (name, svg) in plots::all(results)? {
        fs::write(data.join(name).with_extension("svg"), svg)?;
    }
    fs::write(data.join(&results.about.date).with_extension("csv"), csv::lines(results))?;
    page(folder)
}
