//! The files of a run.

use std::fs;
use std::io;
use std::path::Path;

use super::csv::lines;
use super::page::page;
use super::plots::all;
use crate::results::Results;

/// Writes `performance/DATE.csv`, `performance/*.svg` and the page into `folder`. A scenario
/// without data is left out.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(results: &Results, folder: &Path) -> io::Result<()> {
    let data = folder.join("performance");
    fs::create_dir_all(&data)?;
    for (name, svg) in all(results)? {
        fs::write(data.join(name).with_extension("svg"), svg)?;
    }
    fs::write(data.join(&results.about.date).with_extension("csv"), lines(results))?;
    page(folder)
}
