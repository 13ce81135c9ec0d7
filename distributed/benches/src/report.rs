//! The CSV files of the page.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_benches::report::{MACHINE, add_machine};
use tollgate_benches::rows::Rows;
use tollgate_benches::scenarios::{about, versions};
use tollgate_test_servers::program::find_program;

/// Writes the numbers of a part, with the machine and the day, instead of those from before.
///
/// # Errors
///
/// The file cannot be written, or a program that tells its version is not there.
pub fn replace(folder: &Path, part: &str, rows: Rows) -> io::Result<()> {
    if rows.0.is_empty() {
        return Ok(());
    }
    let mut file = Rows::default();
    add_machine(&mut file, &about()?);
    let packages = versions(include_str!("../Cargo.lock"), "mysql_async redis rusqlite tokio tokio-postgres");
    for (name, version) in packages.into_iter().chain(programs()) {
        file.text([MACHINE, "", &name, "version"], &version);
    }
    file.0.extend(rows.0);
    file.write(&folder.join(part.to_lowercase()).with_extension("csv"))
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
