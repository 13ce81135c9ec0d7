//! Tests of the load and the lookup.

use super::error::Finding;
use super::load::{LoadOptions, Loaded, load_all};

mod errors;
mod explain;
mod forms;
mod hostile;
mod lookup;
mod networks;
mod warnings;

/// Loads files, each a path and its text.
fn load_files(files: &[(&str, &str)]) -> Loaded {
    let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    load_all(&files, LoadOptions::default())
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Returns the errors of one file, a line each, without its name.
fn errors(text: &str) -> String {
    lines(&load_files(&[("a.yaml", text)]).errors).replace("a.yaml:", "")
}

/// Returns the warnings of one file without errors, a line each.
fn warnings(text: &str) -> String {
    let loaded = load_files(&[("a.yaml", text)]);
    assert_eq!(lines(&loaded.errors), "");
    lines(&loaded.warnings).replace("a.yaml:", "")
}
