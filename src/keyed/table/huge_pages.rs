//! The memory of a large table: mapped, with advice to the system to use huge pages.
//!
//! Decisions touch all pages of a table, and the processor caches the addresses of few pages. Huge
//! pages need few addresses. The table begins at the start of a huge page, and the advice is for
//! the huge pages that it fills: its end is on ordinary pages. A table that does not fill one, or
//! cannot be mapped, is in a box. Advice that the system does not follow changes nothing.

use std::ops::Deref;

use memmap2::{Advice, MmapMut};
use self_cell::{MutBorrow, self_cell};
use zerocopy::FromBytes as _;

use super::set::Set;

/// Bytes of a huge page on x86-64, and on 64-bit Arm with pages of 4 KiB. Where huge pages are
/// larger, the system follows the part of the advice that it can.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

self_cell!(
    pub(crate) struct Memory {
        owner: MutBorrow<Owner>,
        #[covariant]
        dependent: Sets,
    }
);

/// The owner of the sets: a mapping or a box.
struct Owner {
    map: Option<MmapMut>,
    boxed: Box<[Set]>,
}

type Sets<'a> = &'a [Set];

impl Deref for Memory {
    type Target = [Set];

    #[inline(always)]
    fn deref(&self) -> &[Set] {
        self.borrow_dependent()
    }
}

/// Returns `sets` empty sets.
pub(crate) fn empty(sets: usize) -> Memory {
    within(map(sets), sets)
}

/// Maps memory for `sets` sets that fill a huge page, and one huge page more for the alignment.
pub(crate) fn map(sets: usize) -> Option<MmapMut> {
    let bytes = sets.checked_mul(size_of::<Set>())?;
    if bytes < HUGE_PAGE {
        return None;
    }
    MmapMut::map_anon(bytes.checked_add(HUGE_PAGE)?).ok()
}

/// Returns `sets` empty sets: in the mapping if it has room for them, else in a box.
pub(crate) fn within(map: Option<MmapMut>, sets: usize) -> Memory {
    let owner = Owner { map, boxed: Box::default() };
    Memory::new(MutBorrow::new(owner), |owner| {
        let Owner { map, boxed } = owner.borrow_mut();
        if let Some(mapped) = map.as_mut().and_then(|map| advised(map, sets)) {
            mapped.fill_with(Set::empty);
            return mapped;
        }
        *boxed = (0..sets).map(|_| Set::empty()).collect();
        boxed
    })
}

/// Returns the part of a mapping for `sets` sets, from the start of a huge page on.
fn advised(map: &mut MmapMut, sets: usize) -> Option<&mut [Set]> {
    let start = map.as_ptr().align_offset(HUGE_PAGE);
    let bytes = sets.checked_mul(size_of::<Set>())?;
    let entry = start..start.checked_add(bytes)?;
    map.get(entry.clone())?;
    // Advice that is not followed costs time, and nothing else.
    let _ = map.advise_range(Advice::HugePage, start, bytes - bytes % HUGE_PAGE);
    <[Set]>::mut_from_bytes(&mut map[entry]).ok()
}
