//! The memory of a table: a box.

use super::set::Set;

pub(crate) type Memory = Box<[Set]>;

/// Returns `sets` empty sets.
pub(crate) fn empty(sets: usize) -> Memory {
    (0..sets).map(|_| Set::empty()).collect()
}
