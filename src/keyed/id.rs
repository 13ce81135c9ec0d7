//! Identities of entries and buckets, beside their keys.

use crate::bucket::atomic::Bucket;

/// Identity of a map entry: half of the key's hash, and the ticket that admitted it.
///
/// No two held entries have the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId {
    pub(crate) hash: u32,
    pub(crate) ticket: u32,
}

impl EntryId {
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.ticket)
    }

    pub(crate) fn unpack(tag: u64) -> EntryId {
        EntryId { hash: (tag >> 32) as u32, ticket: (tag & u64::from(u32::MAX)) as u32 }
    }
}

/// A ticket without an entry.
pub(crate) const FREE: u32 = 0;
/// A ticket that a thread has claimed.
pub(crate) const BUSY: u32 = 1;

/// Identity of a bucket: its address, and in a table the fingerprint of the key that has the slot.
///
/// A map entry belongs to one key for its whole life. Its hot slot is released before the entry is
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketId {
    pub(crate) address: u64,
    pub(crate) fingerprint: u64,
}

impl BucketId {
    #[inline]
    pub(crate) fn new(bucket: &Bucket, fingerprint: u64) -> BucketId {
        BucketId { address: std::ptr::from_ref(bucket).addr() as u64, fingerprint }
    }

    /// Returns the identity of a bucket in a map, or of a table slot with any key.
    #[inline]
    pub(crate) fn of(bucket: &Bucket) -> BucketId {
        BucketId::new(bucket, 0)
    }
}
