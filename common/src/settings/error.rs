//! Mistakes in names and in options, as sentences, and lists of them within bounds.

use std::fmt::Display;

/// A sentence, and the byte of the file that it is about, if it is about one.
#[derive(Debug)]
pub struct Mistake {
    pub at: Option<usize>,
    pub what: String,
}

pub fn mistake(at: Option<usize>, what: impl Into<String>) -> Mistake {
    Mistake { at, what: what.into() }
}

/// Refuses with the first mistake: one outside the file, or the one that begins first.
pub fn check_all(mistakes: Vec<Mistake>) -> Result<(), Mistake> {
    mistakes.into_iter().min_by_key(|mistake| mistake.at).map_or(Ok(()), Err)
}

/// Returns the first `most` items, and the number of the others.
pub fn few(items: impl ExactSizeIterator<Item: Display>, most: usize, between: &str) -> String {
    let others = items.len().saturating_sub(most);
    let mut told: Vec<String> = items.take(most).map(|item| item.to_string()).collect();
    if others > 0 {
        told.push(format!("and {others} more"));
    }
    told.join(between)
}

/// Returns the mistake of a name that is unknown: with the one that was meant, or all.
pub fn unknown(wanted: &str, names: &[&str]) -> String {
    let distance = |name: &&str| strsim::damerau_levenshtein(wanted, name);
    let nearest = names.iter().copied().min_by_key(distance);
    match nearest.filter(|nearest| distance(nearest) <= 1 + wanted.chars().count() / 4) {
        Some(name) => format!("unknown field `{wanted}`, did you mean `{name}`?"),
        None => format!("unknown field `{wanted}`, there are `{}`", names.join("`, `")),
    }
}

/// One sentence of a refusal of options, without clap's `error: ` and usage, and with the option
/// that was meant.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let sentence = lines.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    // Other hints tell how to pass an odd value.
    let meant = text.lines().filter_map(|line| line.trim().strip_prefix("tip: a similar "));
    match meant.filter_map(|hint| hint.split_once("exists: ")).next() {
        Some((_, name)) => format!("{sentence}, did you mean {name}?"),
        None => sentence.to_owned(),
    }
}
