//! The error of a quota that a store cannot hold.

use std::error::Error;
use std::fmt;

use tollgate::Quota;

use super::spec::MAX_CREDITS;

/// A quota whose bucket needs 2^53 credits or more: a store counts no such number exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSpec {
    pub(crate) quota: Quota,
    pub(crate) debt: u64,
    pub(crate) credits: u128,
}

impl fmt::Display for InvalidSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a quota of {} ", self.quota)?;
        if self.debt > 0 {
            write!(f, "with a debt of {} tokens ", self.debt)?;
        }
        write!(f, "needs {} credits, and a store counts to {MAX_CREDITS}", self.credits)
    }
}

impl Error for InvalidSpec {}
