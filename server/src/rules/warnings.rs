//! Rules that are valid, and probably not meant.

use super::fault::Finding;
use super::tree::Rules;

/// Adds the warnings of a tree.
pub(super) fn of(_rules: &Rules, _found: &mut Vec<Finding>) {}
