//! The texts of settings, as one source names them.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The source of a text.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// A variable of the environment.
    Variable,
    /// The command line, or the table itself.
    Option,
    /// A file, with the byte at which the text begins.
    File { at: usize, is_quoted: bool },
}

/// A text of a source.
#[derive(Clone, Debug)]
pub struct Text {
    pub text: String,
    pub from: Origin,
}

/// The texts of a setting: one, or those of a list.
#[derive(Clone, Debug)]
pub struct Texts {
    pub texts: Vec<Text>,
    /// Whether a file has them as a list.
    pub is_list: bool,
    /// The source of the whole.
    pub from: Origin,
}

/// The texts of one source, by the names of their settings.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The folder of the file. Paths are relative to it.
    pub folder: PathBuf,
    pub texts: BTreeMap<&'static str, Texts>,
}

impl Origin {
    /// Returns the byte of the file, if it is one.
    pub fn at(self) -> Option<usize> {
        match self {
            Origin::File { at, .. } => Some(at),
            Origin::Variable | Origin::Option => None,
        }
    }
}

impl Texts {
    pub fn one(text: &str, from: Origin) -> Texts {
        Texts { texts: vec![Text { text: text.to_owned(), from }], is_list: false, from }
    }

    /// Returns the byte of the file at which they begin.
    pub fn at(&self) -> Option<usize> {
        self.from.at()
    }
}
