//! The keys of counts in a store, which are the same in each process.

use std::fmt::Write;

use super::super::messages::DescriptorEntry;
use crate::rules::shared_entry::SharedEntry;

/// Returns the key of a count: the domain and the entries, each text behind its length, so that no
/// two lists of entries are one key. `shared` has the parts that stand for entries.
///
/// It begins with nothing, with `!` of an override that has a count of its own, or with the place
/// in a list of limits.
pub(super) fn of(
    begin: String,
    domain: &str,
    entries: &[DescriptorEntry],
    shared: &[Option<SharedEntry>],
) -> Vec<u8> {
    let mut key = begin;
    let mut add = |mark: &str, text: &str| {
        let _ = write!(key, "{mark}{}:{text}", text.len());
    };
    add("", domain);
    let mut shared = shared.iter();
    for entry in entries {
        match shared.next() {
            Some(Some(SharedEntry::Pattern(pattern))) => add("*", pattern),
            shared => {
                add("", &entry.key);
                add("", &SharedEntry::value(shared, &entry.value));
            }
        }
    }
    key.into_bytes()
}

/// Returns the key of a count as envoyproxy/ratelimit writes it, before the begin of the window.
/// `shared` has the patterns that stand for values there as well. It has no networks.
pub(super) fn of_envoy(domain: &str, entries: &[DescriptorEntry], shared: &[Option<SharedEntry>]) -> Vec<u8> {
    let mut key = format!("{domain}_");
    let mut shared = shared.iter();
    for entry in entries {
        let value = match shared.next() {
            // The pattern stands behind the key.
            Some(Some(SharedEntry::Pattern(pattern))) => {
                pattern.split_once('\0').map_or("", |(_, value)| value)
            }
            _ => &*entry.value,
        };
        key.extend([&*entry.key, "_", value, "_"]);
    }
    key.into_bytes()
}
