//! The memory of a table: a box.

use crate::keyed::table::Set;

pub(crate) type Memory = Box<[Set]>;

/// So many sets, all empty.
pub(crate) fn empty(sets: usize) -> Memory {
    (0..sets).map(|_| Set::empty()).collect()
}

/// Declares what lies in such memory.
macro_rules! in_memory {
    ($item:item) => {
        $item
    };
}
pub(crate) use in_memory;
