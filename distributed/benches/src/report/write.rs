//! The files of the page.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use tollgate_benches::scenarios::{about, versions};
use tollgate_test_servers::program::find_program;

use super::plots::all;
use super::tables::{MACHINE, table};
use crate::rows::Rows;

/// The name of the page.
pub const PAGE: &str = "distributed-performance.md";

/// Returns the folder of the CSV files and the plots.
#[must_use]
pub fn data(folder: &Path) -> PathBuf {
    folder.join("distributed-performance")
}

/// Writes the numbers of a part, with the machine and the day, instead of those from before.
///
/// # Errors
///
/// The file cannot be written, or a program that tells its version is not there.
pub fn replace(folder: &Path, part: &str, rows: Rows) -> io::Result<()> {
    if rows.0.is_empty() {
        return Ok(());
    }
    let (mut file, about) = (Rows::default(), about(false)?);
    let processors = about.processors.to_string();
    let machine = [
        ("processor", &about.processor),
        ("processors", &processors),
        ("kernel", &about.kernel),
        ("rustc", &about.rustc),
    ];
    for (name, value) in machine.into_iter().chain([("date", &about.date)]) {
        file.text([MACHINE, "", "", name], value);
    }
    let packages =
        versions(include_str!("../../Cargo.lock"), "mysql_async redis rusqlite tokio tokio-postgres");
    for (name, version) in packages.into_iter().chain(programs()) {
        file.text([MACHINE, "", &name, "version"], &version);
    }
    file.0.extend(rows.0);
    file.write(&data(folder).join(part.to_lowercase()).with_extension("csv"))
}

/// Returns the versions of the servers that are installed.
fn programs() -> Vec<(String, String)> {
    let told = |name: &str, path: Option<PathBuf>| {
        let output = Command::new(path?).arg("--version").output().ok()?;
        Some((name.to_owned(), String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    };
    let programs = ["redis-server", "psql", "mariadbd"];
    programs.into_iter().filter_map(|name| told(name, find_program(name, &[]))).collect()
}

/// Writes the page and the plots. A table whose file is not there has no rows.
///
/// # Errors
///
/// A file cannot be read or written.
pub fn write(folder: &Path) -> io::Result<()> {
    files(folder)?.into_iter().try_for_each(|(path, text)| fs::write(path, text))
}

/// Returns the page or a plot that differs from its CSV files, if there is one.
///
/// # Errors
///
/// A CSV file cannot be read.
pub fn differs(folder: &Path) -> io::Result<Option<PathBuf>> {
    let is_other = |(path, text): &(PathBuf, String)| fs::read_to_string(path).ok().as_ref() != Some(text);
    Ok(files(folder)?.into_iter().find(is_other).map(|(path, _)| path))
}

/// Returns the page and the plots, each with its path.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(data(folder))? {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    paths.sort();
    let mut rows = Rows::default();
    for path in paths {
        rows.0.extend(Rows::read(&path)?.0);
    }
    let lines = include_str!("page.md").lines();
    let page = lines.map(|line| match line.strip_prefix('{').and_then(|line| line.strip_suffix('}')) {
        Some(name) => table(&rows, name),
        None => line.to_owned(),
    });
    let page = (folder.join(PAGE), page.collect::<Vec<_>>().join("\n") + "\n");
    let plots = all(&rows)?.into_iter();
    let plots = plots.map(|(name, svg)| (data(folder).join(name).with_extension("svg"), svg));
    Ok(plots.chain([page]).collect())
}
