//! The file: its text, and the places of mistakes in it.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::fault::{Fault, nearest};
use super::given::{Given, build};
use super::settings::Settings;

/// The most bytes of a file.
const MOST: u64 = 1 << 20;

/// A file that was read, and is TOML with known names.
pub(super) struct File {
    path: PathBuf,
    text: String,
    given: Given,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File, String> {
        let cannot_read = |error| format!("cannot read {}: {error}", path.display());
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(cannot_read)?;
        file.take(MOST + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
        if bytes.len() as u64 > MOST {
            return Err(format!("{} is over the bound of {MOST} bytes", path.display()));
        }
        File::parse(path, bytes)
    }

    fn parse(path: &Path, bytes: Vec<u8>) -> Result<File, String> {
        let text = String::from_utf8(bytes).map_err(|error| {
            let (at, before) = (error.utf8_error().valid_up_to(), String::from_utf8_lossy(error.as_bytes()));
            place(path, &before, at, "a byte that is not UTF-8")
        })?;
        let given = toml::from_str(&text).map_err(|error| {
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            place(path, &text, error.span().map_or(0, |span| span.start), &with_name(what))
        })?;
        if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
            return Err(place(path, &text, 0, "the file is empty: no setting is named"));
        }
        // Or `cost = 1` might be the beginning of `cost = 10`.
        if !text.ends_with('\n') {
            let what = "the last line does not end with a newline: the file may have been cut";
            return Err(place(path, &text, text.len(), what));
        }
        Ok(File { path: path.to_owned(), text, given })
    }

    /// The settings of the base, overridden by this file, and that by the options.
    pub(super) fn over(&self, base: &Settings, options: &Given) -> Result<Settings, String> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        build(base, &self.given, folder, options).map_err(|Fault { at, what }| match at {
            Some(at) => place(&self.path, &self.text, at, &what),
            None => what,
        })
    }
}

/// The error of an unknown name, with the one that was meant if there is one.
fn with_name(what: String) -> String {
    let Some(names) = what.strip_prefix("unknown field `") else { return what };
    // The names are in backticks: the unknown one, and those that there are.
    let names: Vec<&str> = names.split('`').step_by(2).collect();
    match names.split_first().and_then(|(wanted, known)| Some((wanted, nearest(wanted, known)?))) {
        Some((wanted, name)) => format!("unknown field `{wanted}`, did you mean `{name}`?"),
        None => what,
    }
}

/// The text without commands to a terminal, which a name in the file may have.
fn printable(text: &str) -> String {
    let mut printable = String::new();
    for char in text.chars() {
        match char.is_control() {
            true => printable.extend(char.escape_default()),
            false => printable.push(char),
        }
    }
    printable
}

/// `FILE:LINE:COLUMN: ...` for a byte of the text. Columns are counted in characters.
fn place(path: &Path, text: &str, at: usize, what: &str) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line_begins = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.matches('\n').count();
    let column = 1 + before[line_begins..].chars().count();
    format!("{}:{line}:{column}: {}", path.display(), printable(what))
}
