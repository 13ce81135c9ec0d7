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

/// Returns the mistake of a name that is unknown: with the one that was meant, or all.
pub(super) fn unknown(wanted: &str, names: &[&str]) -> String {
    let distance = |name: &&str| strsim::damerau_levenshtein(wanted, name);
    let nearest = names.iter().copied().min_by_key(distance);
    match nearest.filter(|nearest| distance(nearest) <= 1 + wanted.chars().count() / 4) {
        Some(name) => format!("unknown field `{wanted}`, did you mean `{name}`?"),
        None => format!("unknown field `{wanted}`, there are `{}`", names.join("`, `")),
    }
}
