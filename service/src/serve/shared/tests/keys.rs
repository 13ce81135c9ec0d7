//! The keys of counts in a store.

use crate::rules::shared_entry::SharedEntry;
use crate::serve::messages::DescriptorEntry;
use crate::serve::shared::store_key;

#[test]
fn no_two_lists_of_entries_have_one_key() {
    let entry = |key: &str, value: &str| DescriptorEntry { key: key.to_owned(), value: value.to_owned() };
    let lists = [
        ("d", vec![entry("a", "b_c")]),
        ("d", vec![entry("a_b", "c")]),
        ("d", vec![entry("a", "b"), entry("c", "")]),
        ("d", vec![entry("a", "b1:c0:")]),
        ("d1", vec![entry(":a", "b")]),
        ("d", vec![entry("1:a", "b")]),
        ("d", vec![entry("", "")]),
        ("d", vec![]),
    ];
    let keys: Vec<_> =
        lists.iter().map(|(domain, entries)| store_key::of(String::new(), domain, entries, &[])).collect();
    let all: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(all.len(), lists.len(), "{keys:?}");
    assert_ne!(store_key::of("!".to_owned(), "d", &lists[0].1, &[]), keys[0]);
    let pattern = [Some(SharedEntry::Pattern("a\0b_*".into()))];
    assert_ne!(store_key::of(String::new(), "d", &lists[0].1, &pattern), keys[0]);
    assert_eq!(store_key::of_envoy("d", &lists[0].1, &pattern), b"d_a_b_*_");
}
