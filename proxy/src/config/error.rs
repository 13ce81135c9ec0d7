//! Mistakes in a file or in the options.

/// A sentence, and the byte of the file that it is about, if it is about the file.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) at: Option<usize>,
    pub(super) what: String,
}

pub(super) fn mistake(at: Option<usize>, what: String) -> Mistake {
    Mistake { at, what }
}
