//! The counts in the word of a window, and of a limit on requests in flight.

/// The way in which a word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Counting {
    /// The word is a bucket: it counts tokens that refill.
    Bucket,
    /// Counts of sub-windows. A fixed window is its only sub-window.
    SubWindows,
    /// Like `SubWindows` with one count, of civil months.
    Months,
    /// One count, from the first use.
    FirstUse,
    /// Two counts, of which the earlier one fades.
    Weighted,
    /// One count, of places in use. It does not depend on time.
    Places,
}

/// The fields of a word that counts windows or places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountWidths {
    pub(crate) counting: Counting,
    /// Bits of a count.
    pub(crate) count: u8,
    /// Counts beside the current one.
    pub(crate) before: u8,
}

impl CountWidths {
    pub(crate) const BUCKET: CountWidths = CountWidths { counting: Counting::Bucket, count: 0, before: 0 };

    pub(super) const fn alone(counting: Counting, top: u64) -> CountWidths {
        CountWidths { counting, count: bits(top + 1), before: 0 }
    }

    /// Returns the most tokens that all counts together may have.
    pub(crate) const fn most(self) -> u64 {
        let all_ones = (1 << self.count) - 1;
        match self.counting {
            // Not all of them can be all ones.
            Counting::SubWindows if self.before > 0 => all_ones,
            _ => all_ones - 1,
        }
    }

    pub(crate) const fn stamp(self) -> u32 {
        64_u32.saturating_sub(self.count as u32 * (self.before as u32 + 1))
    }
}

/// Returns the bits of a number.
pub(super) const fn bits(number: u64) -> u8 {
    (64 - number.leading_zeros()) as u8
}
