//! The share of keys whose refusals are enforced.

/// A share of all keys by their hashes, in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u64);

impl Share {
    /// No key: shadow mode.
    pub(crate) const NONE: Share = Share(0);
    pub(crate) const ALL: Share = Share(1 << 32);

    /// Returns the share of `percent` hundredths; all keys from 100 on.
    pub(crate) fn of_percent(percent: u8) -> Share {
        Share(Share::ALL.0 * u64::from(percent.min(100)) / 100)
    }

    /// Returns whether the share has the key of this hash. The hash of no key is 0.
    #[inline(always)]
    pub(crate) fn contains(self, hash: u64) -> bool {
        // The upper half, as the best mixed one.
        hash >> 32 < self.0
    }

    /// Returns whether it depends on a key whether the share has it.
    pub(crate) fn is_of_some(self) -> bool {
        self != Share::NONE && self != Share::ALL
    }
}
