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
