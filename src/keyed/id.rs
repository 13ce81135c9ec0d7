//! What entries and buckets are known by, beside their keys.

use crate::bucket::atomic::Bucket;

/// What the map knows an entry by without asking the key: half of its hash, and the ticket it was admitted with.
///
/// Of entries that are held at the same time no two have the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId {
    pub(crate) hash: u32,
    pub(crate) ticket: u32,
}

impl EntryId {
    /// Side by side.
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.ticket)
    }

    pub(crate) fn unpack(tag: u64) -> EntryId {
        EntryId { hash: (tag >> 32) as u32, ticket: (tag & u64::from(u32::MAX)) as u32 }
    }
}

/// A ticket that has no entry.
pub(crate) const FREE: u32 = 0;
/// A ticket that a thread has claimed.
pub(crate) const BUSY: u32 = 1;

/// A hash as a ticket can have it.
#[inline]
pub(crate) fn ticket_hash(hash: u32) -> u32 {
    hash.max(BUSY + 1)
}

/// A hash each of whose bits depends on all of another's: a user's hasher may leave most bits alike.
///
/// Of the lower half of the product alone, most bits have nothing of the uppermost ones.
#[inline(always)]
pub(crate) fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// What a bucket is known by: where it is, and in a table by the digest of the key that has the slot.
///
/// An entry of a map is one key's as long as it lives, and a seat is left before it is dropped.
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

    /// Of a bucket in a map; or in a table, whosever it is.
    #[inline]
    pub(crate) fn of(bucket: &Bucket) -> BucketId {
        BucketId::new(bucket, 0)
    }
}
