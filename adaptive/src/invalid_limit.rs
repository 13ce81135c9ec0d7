//! The error of a limit that is out of bounds.

use std::error::Error;
use std::fmt;

/// A limit, or a number of its builder, that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLimit {
    pub(crate) what: &'static str,
    pub(crate) given: u128,
    pub(crate) least: u128,
    pub(crate) most: u128,
}

impl InvalidLimit {
    /// Returns the number if it is within its bounds.
    pub(crate) fn check(
        what: &'static str,
        given: impl Into<u128>,
        (least, most): (u128, u128),
    ) -> Result<(), InvalidLimit> {
        let given = given.into();
        if (least..=most).contains(&given) { Ok(()) } else { Err(InvalidLimit { what, given, least, most }) }
    }
}

impl Error for InvalidLimit {}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidLimit { what, given, least, most } = self;
        write!(f, "{what} of {given} is out of bounds: {least} to {most}")
    }
}
