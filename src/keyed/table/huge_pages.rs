//! The memory of a table: mapped, with the advice to the system that huge pages would do well; else a box.
//!
//! Decisions look all over a large table, and a processor does not remember where so many pages are. Of huge pages there are few.
//! The table begins with one, and the advice is for those that it fills: what remains at its end is on ordinary pages, and a table that does not
//! fill one is in a box, so neither takes more memory. What cannot be mapped is in a box as well, and advice that the system does not follow
//! changes nothing.

use std::ops::Deref;

use memmap2::{Advice, MmapMut};
use self_cell::{MutBorrow, self_cell};
use zerocopy::FromBytes as _;

use super::set::Set;

/// As it is on x86-64, and on 64-bit Arm with pages of 4 KiB. Where it is more, the system takes the part of the advice that it can follow.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

self_cell!(
    pub(crate) struct Memory {
        owner: MutBorrow<Owner>,
        #[covariant]
        dependent: Sets,
    }
);

/// The sets are in one of them.
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

/// So many sets, all empty.
pub(crate) fn empty(sets: usize) -> Memory {
    within(map(sets), sets)
}

/// Memory for so many sets that fill a huge page, and for one such page more, so that they can begin where one does.
pub(crate) fn map(sets: usize) -> Option<MmapMut> {
    let bytes = sets.checked_mul(size_of::<Set>())?;
    if bytes < HUGE_PAGE {
        return None;
    }
    MmapMut::map_anon(bytes.checked_add(HUGE_PAGE)?).ok()
}

/// In the map, if there is one and it has room for them.
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

/// So many sets from the beginning of a huge page on.
fn advised(map: &mut MmapMut, sets: usize) -> Option<&mut [Set]> {
    let start = map.as_ptr().align_offset(HUGE_PAGE);
    let bytes = sets.checked_mul(size_of::<Set>())?;
    let entry = start..start.checked_add(bytes)?;
    map.get(entry.clone())?;
    // Not followed, it makes no difference but to the time that decisions take.
    let _ = map.advise_range(Advice::HugePage, start, bytes - bytes % HUGE_PAGE);
    <[Set]>::mut_from_bytes(&mut map[entry]).ok()
}
