//! The memory of a table with feature `huge-pages`, as far as Linux reports it.
//! `tests/it/inline.rs` tests that a table works there as it does in a box.

use std::fs;
use std::ops::Range;
use std::path::Path;

use memmap2::MmapMut;

use crate::keyed::table::Set;
use crate::keyed::table::memory::{HUGE_PAGE, Memory, empty, map, within};

const SETS: usize = HUGE_PAGE / size_of::<Set>();

fn addresses(memory: &Memory) -> Range<usize> {
    let Range { start, end } = memory.as_ptr_range();
    start.addr()..end.addr()
}

/// A mapping of the process, and whether the system was advised to use huge pages for it.
struct Mapping {
    addresses: Range<usize>,
    advised: bool,
}

/// Returns the mappings; `None` if the system has no huge pages, or does not report the advice.
fn mappings() -> Option<Vec<Mapping>> {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return None;
    }
    let told = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut all = Vec::<Mapping>::new();
    for line in told.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            all.last_mut()?.advised = flags.split_whitespace().any(|flag| flag == "hg");
            continue;
        }
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some([Ok(start), Ok(end)]) =
            range.map(|(a, b)| [a, b].map(|hex| usize::from_str_radix(hex, 16)))
        {
            all.push(Mapping { addresses: start..end, advised: false });
        }
    }
    told.contains("VmFlags:").then_some(all)
}

#[test]
fn a_large_table_is_on_huge_pages_as_far_as_it_fills_them() {
    const PAGES: usize = 5;
    let memory = empty(PAGES * SETS + 1_000);
    assert_eq!(memory.len(), PAGES * SETS + 1_000);
    let Range { start, end } = addresses(&memory);
    assert_eq!(start % HUGE_PAGE, 0, "it begins with a huge page");
    let Some(all) = mappings() else {
        println!(
            "not shown: the system does not tell in /proc/self/smaps what it was advised, or has no huge pages"
        );
        return;
    };
    let of = |address| all.iter().find(|one| one.addresses.contains(&address)).expect("it is mapped");
    let first = of(start);
    assert!(first.advised, "the system was not advised");
    assert_eq!(first.addresses, start..start + PAGES * HUGE_PAGE);
    assert!(!of(end - 1).advised, "the rest takes no page that it does not fill");
    // No other test here asks for huge pages.
    drop(memory);
    let left = mappings().expect("as before").iter().any(|one| one.advised && one.addresses.contains(&start));
    assert!(!left, "it was not given back");
}

#[test]
fn nothing_is_mapped_for_less_than_a_huge_page() {
    for (sets, mapped) in [(0, false), (1, false), (SETS - 1, false), (SETS, true), (SETS + 1, true)] {
        assert_eq!(map(sets).is_some(), mapped, "{sets} sets");
    }
    for sets in [0, 1, SETS - 1] {
        assert_eq!(empty(sets).len(), sets);
    }
}

/// A table too large to be mapped has no mapping, and mapping it does not panic. Without a mapping,
/// or in one that is too short, the sets are in a box.
#[test]
fn what_cannot_be_mapped_is_in_a_box() {
    for sets in [usize::MAX, usize::MAX / size_of::<Set>(), isize::MAX as usize / size_of::<Set>()] {
        assert!(map(sets).is_none(), "{sets} sets");
    }
    assert_eq!(within(None, 2 * SETS).len(), 2 * SETS);
    // The mapping ends before a huge page begins, or before the sets end.
    for bytes in [1, HUGE_PAGE, 2 * HUGE_PAGE - 1] {
        let short = MmapMut::map_anon(bytes).expect("so little can be had");
        assert_eq!(within(Some(short), 2 * SETS).len(), 2 * SETS, "{bytes} bytes");
    }
}
