//! Mistakes in a file or in the options.

/// A sentence, and the byte of the file that it is about, if it is about the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: Option<usize>,
    pub(super) what: String,
}

pub(super) fn fault(at: Option<usize>, what: String) -> Fault {
    Fault { at, what }
}

/// Returns the name that was meant, if one is like the wanted one.
pub(super) fn nearest<'a>(wanted: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&str| strsim::damerau_levenshtein(wanted, name);
    let nearest = names.iter().copied().min_by_key(distance)?;
    (distance(&nearest) <= 1 + wanted.chars().count() / 4).then_some(nearest)
}
