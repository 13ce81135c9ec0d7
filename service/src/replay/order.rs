//! The order of the lines: a log is written as requests end, so that their times are out of order.

use std::collections::BTreeMap;
use std::time::Duration;

/// The time within which lines are put in order.
pub(super) const SPAN: Duration = Duration::from_secs(60);

/// Values in the order of their times. What is later than [`SPAN`] stays where it is.
pub(super) struct Ordered<T> {
    waiting: BTreeMap<(Duration, u64), T>,
    number: u64,
    newest: Duration,
    /// The time of the last value that was handed out.
    given: Duration,
}

impl<T> Ordered<T> {
    pub(super) fn new() -> Ordered<T> {
        let (newest, given) = (Duration::ZERO, Duration::ZERO);
        Ordered { waiting: BTreeMap::new(), number: 0, newest, given }
    }

    /// Adds a value, and returns whether it is late: it counts as one of the time that has been
    /// reached.
    pub(super) fn push(&mut self, at: Duration, value: T) -> bool {
        self.number += 1;
        self.newest = self.newest.max(at);
        self.waiting.insert((at.max(self.given), self.number), value);
        at < self.given
    }

    /// Returns the next value if no earlier one is to be expected.
    pub(super) fn next(&mut self) -> Option<(Duration, T)> {
        let is_due = self.waiting.first_key_value()?.0.0 + SPAN < self.newest;
        if is_due { self.last() } else { None }
    }

    /// Returns the next value at the end of the log.
    pub(super) fn last(&mut self) -> Option<(Duration, T)> {
        let ((at, _), value) = self.waiting.pop_first()?;
        self.given = at;
        Some((at, value))
    }
}
