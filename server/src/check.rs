//! `tollgate check PATH...`: the errors and the warnings of the files of a rate limit service.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::output::say;
use crate::rules::load::{LoadOptions, Loaded, load_all};

#[cfg(test)]
mod tests;

/// Prints the errors and the warnings of files and of all files below folders.
///
/// Returns whether they may be served: there is no error, and with `strict` no warning. A path that
/// cannot be read is an error of one sentence.
pub(crate) fn run(paths: &[PathBuf], strict: bool, options: LoadOptions) -> Result<bool, String> {
    let files = read(paths)?;
    let (text, passes) = report(&files, strict, options);
    say(format_args!("{}", text.trim_end()));
    Ok(passes)
}

/// Returns a line for each error and each warning with a sum of them, and whether the files pass.
fn report(files: &[(String, String)], strict: bool, options: LoadOptions) -> (String, bool) {
    let Loaded { rules, errors, warnings } = load_all(files, options);
    let mut text = String::new();
    for error in &errors {
        let _ = writeln!(text, "{error}");
    }
    for warning in &warnings {
        let _ = writeln!(text, "{}: warning: {}", warning.at, warning.what);
    }
    let count = |n: usize, of: &str| format!("{n} {of}{}", if n == 1 { "" } else { "s" });
    let (files, limits) = (count(files.len(), "file"), count(rules.limits().len(), "limit"));
    let (failed, warned) = (count(errors.len(), "error"), count(warnings.len(), "warning"));
    let _ = writeln!(text, "{files}, {limits}: {failed}, {warned}");
    (text, errors.is_empty() && (!strict || warnings.is_empty()))
}

/// Returns each file with its text, in the order in which a server loads them.
fn read(paths: &[PathBuf]) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    for path in paths {
        add(path, true, &mut files)?;
    }
    if files.is_empty() {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(format!("no file .yaml or .yml in {}", paths.join(", ")));
    }
    Ok(files)
}

/// Adds a path that is given, or a path of a folder if it is visible and its name is one of YAML.
fn add(path: &Path, given: bool, files: &mut Vec<(String, String)>) -> Result<(), String> {
    let cannot_read = |error| format!("cannot read {}: {error}", path.display());
    if fs::metadata(path).map_err(cannot_read)?.is_dir() {
        let entries = fs::read_dir(path).map_err(cannot_read)?;
        let below: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
        let mut below = below.map_err(cannot_read)?;
        below.sort_unstable();
        let visible =
            |path: &Path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."));
        return below.iter().filter(|path| visible(path)).try_for_each(|path| add(path, false, files));
    }
    if given || path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
        files.push((path.display().to_string(), fs::read_to_string(path).map_err(cannot_read)?));
    }
    Ok(())
}
