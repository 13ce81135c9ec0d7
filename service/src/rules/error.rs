//! A mistake in a configuration, and its spot.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A spot in a text: its line and its column, both from 1 on.
///
/// A document that is no text has its descriptors in place of lines, in the order in which they are
/// written with each before those below it. The column is 0 then, and the line of the whole is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spot {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A spot in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpot {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

/// The alternate form has no column.
impl fmt::Display for FileSpot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileSpot { file, line, column } = self;
        match (line, column) {
            (0, 0) => f.write_str(file),
            (number, 0) => write!(f, "{file}, descriptor {number}"),
            _ if f.alternate() => write!(f, "{file}:{line}"),
            _ => write!(f, "{file}:{line}:{column}"),
        }
    }
}

/// An error or a warning: one sentence with its spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub at: FileSpot,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The most findings of a kind that are kept, and the most bytes of each: a text may have as many
/// as it has bytes, and the names in them are as long as it is.
const MOST_KEPT: usize = 10_000;
pub(super) const MOST_BYTES: usize = 2 << 10;

/// Adds a finding, and in place of those above the bound a word about them.
pub(super) fn keep(findings: &mut Vec<Finding>, at: FileSpot, what: &str) {
    match findings.len() {
        ..MOST_KEPT => findings.push(Finding { at, what: bounded(what, MOST_BYTES).into_owned() }),
        MOST_KEPT => findings.push(Finding { at, what: format!("those above {MOST_KEPT} are not told") }),
        _ => (),
    }
}

/// Returns a text up to a bound of its bytes: its beginning with two dots, if it is longer.
pub(crate) fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    match text.len() > most {
        true => format!("{} ..", beginning(text, most)).into(),
        false => text.into(),
    }
}

/// Returns the beginning of a text, of whole characters.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Returns the words that were meant: the nearest known one, or all of them.
pub(super) fn meant(wanted: &str, known: &[&str]) -> String {
    let distance = |word: &&str| strsim::damerau_levenshtein(&wanted.to_lowercase(), word);
    // The distance of long texts takes the product of both lengths.
    let nearest = known.iter().filter(|_| wanted.len() <= 64).min_by_key(|word| distance(word));
    match nearest.filter(|nearest| distance(nearest) <= 1 + wanted.chars().count() / 4) {
        Some(word) => format!("did you mean '{word}'?"),
        None => format!("there are {}", known.join(", ")),
    }
}
