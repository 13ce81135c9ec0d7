//! The names of policies and units, as strings of structured fields.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Returns a string of structured fields (RFC 9651, 3.3.3).
pub(super) fn quoted(name: &str) -> Result<Arc<str>, InvalidName> {
    if let Some((at, found)) = name.chars().enumerate().find(|(_, c)| !(' '..='~').contains(c)) {
        return Err(InvalidName(NameFault::Character { at, found }));
    }
    if !(1..=MAX_NAME).contains(&name.len()) {
        return Err(InvalidName(NameFault::Length(name.len())));
    }
    Ok(format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")).into())
}

const MAX_NAME: usize = 64;
/// The longest quoted name, of which each character is escaped.
pub(super) const MAX_QUOTED: usize = 2 + 2 * MAX_NAME;

/// The error of an invalid name of a policy or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(NameFault);

#[derive(Clone, Debug, PartialEq, Eq)]
enum NameFault {
    Length(usize),
    Character { at: usize, found: char },
}

impl Error for InvalidName {}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            NameFault::Length(length) => {
                write!(f, "a name of {length} characters is out of the bounds of 1 and {MAX_NAME}")
            }
            NameFault::Character { at, found } => {
                write!(f, "character {at} of a name, {found:?}, is not printable ASCII, ' ' to '~'")
            }
        }
    }
}
