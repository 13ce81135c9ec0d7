//! The arithmetic of a commit: the change of each count from the reserved amount to the actual one.

use super::id::Part;

/// A settlement of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settlement {
    pub(super) actual: u64,
    /// Tokens that were reserved and not used go back.
    pub(super) gives_back: bool,
    /// The amount is still charged; else all of it went back before.
    pub(super) is_charged: bool,
}

/// The change of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    More(u64),
    Back(u64, Part),
}

impl Settlement {
    /// Returns the settlement without a reservation.
    pub(super) fn of_report(actual: u64) -> Settlement {
        Settlement { actual, gives_back: false, is_charged: false }
    }

    /// Returns the change under a limit of this kind. A limit that counted nothing takes all.
    pub(super) fn change(self, amount: u64, part: Option<Part>, kind: u32) -> Option<Change> {
        let reserved = part.filter(|_| self.is_charged).map_or(0, |_| amount);
        if self.actual > reserved {
            return Some(Change::More(self.actual - reserved));
        }
        let part = part.filter(|part| self.gives_back && self.is_charged && part.kind == kind)?;
        let back = reserved - self.actual;
        (back > 0).then_some(Change::Back(back, part))
    }
}
