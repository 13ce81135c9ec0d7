//! The identity of an entry of the map, without its key.

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
