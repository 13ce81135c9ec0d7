//! The bytes of entries in the hash that is the key of a count, and the digest of a key.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::limiters::CountKey;
use super::messages::DescriptorEntry;
use crate::rules::shared_entry::SharedEntry;

/// Returns the key of a count whose entries share it.
#[cold]
#[inline(never)]
pub(super) fn shared_key(
    mut hasher: SipHasher13,
    domain: &str,
    entries: &[DescriptorEntry],
    shared: &[Option<SharedEntry>],
) -> CountKey {
    add_domain(&mut hasher, domain);
    for (level, entry) in entries.iter().enumerate() {
        match shared.get(level) {
            // The highest bit tells a pattern from an entry with an empty key.
            Some(Some(SharedEntry::Pattern(pattern))) => add_entry(&mut hasher, 1 << 63, "", pattern),
            shared => add_entry(&mut hasher, 0, &entry.key, &SharedEntry::value(shared, &entry.value)),
        }
    }
    hasher.finish128().as_bytes()
}

/// Returns a digest of a key: 16 hex digits. It is no part of the key, whose bits are its place in
/// a table. It depends on the secret of the hasher.
pub(super) fn digest(mut hasher: SipHasher13, key: &CountKey) -> String {
    hasher.write(b"digest");
    hasher.write(key);
    format!("{:016x}", hasher.finish128().h1)
}

#[inline(always)]
pub(super) fn add_domain(hasher: &mut SipHasher13, domain: &str) {
    hasher.write_u64(length(domain));
    hasher.write(domain.as_bytes());
}

/// Adds an entry to a key. The lengths go first, so that no two lists of entries are the same
/// bytes.
#[inline(always)]
pub(super) fn add_entry(hasher: &mut SipHasher13, mark: u64, key: &str, value: &str) {
    hasher.write_u64(mark | length(key) << 32 | length(value));
    hasher.write(key.as_bytes());
    hasher.write(value.as_bytes());
}

#[inline(always)]
fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
