//! The report of a run: a table for each scenario, all numbers as CSV, and the plots.

mod losses;
mod numbers;
mod plots;
mod tables;

use std::fs;
use std::io;
use std::path::Path;

use self::numbers::count;
use crate::results::Results;

/// tollgate in its default form.
const OURS: &str = "tollgate";

/// Writes `performance.md`, `performance.csv` and `performance/*.svg` into `folder`. A scenario
/// without data is left out.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(results: &Results, folder: &Path) -> io::Result<()> {
    let (plots, mut tables) = (plots::all(results)?, tables::all(results));
    tables.extend(losses::table(&tables));
    fs::create_dir_all(folder.join("performance"))?;
    let mut page = head(results);
    for plot in &plots {
        fs::write(folder.join(plot.file()), &plot.svg)?;
        page += &plot.link();
    }
    page.extend(tables.iter().map(tables::Table::markdown));
    fs::write(folder.join("performance.md"), page)?;
    fs::write(folder.join("performance.csv"), tables::csv(&tables))
}

fn head(results: &Results) -> String {
    let about = &results.about;
    format!(
        "# Performance\n\n{}{}, {}, {}, {}, {}, {} s. Beside a median are its quartiles. \
         A ratio below 1 says that tollgate is faster.\n",
        if about.quick { "**Quick run: few rounds, not to be quoted.**\n\n" } else { "" },
        about.processor,
        count(about.processors, "processor"),
        about.kernel,
        about.rustc,
        about.date,
        about.seconds
    )
}
