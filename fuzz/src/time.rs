//! A mock clock that is told what to read.

use std::time::Duration;

use tollgate::{Clock, MockClock};

/// The last reading: 2^62 ns, less the hour and the jitter that a bucket whose range is no longer than that takes for a
/// jump back.
pub(crate) const LAST: u64 = (1 << 62) - (1 << 42);

pub(crate) struct Time {
    mock: MockClock,
    now: u64,
}

impl Time {
    pub(crate) fn at(now: u64) -> (Clock, Time) {
        let (clock, mock) = Clock::mock();
        let mut time = Time { mock, now: 0 };
        time.go_to(now);
        (clock, time)
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn go_to(&mut self, now: u64) {
        let now = now.min(LAST);
        self.mock.advance(Duration::from_nanos(now.saturating_sub(self.now)));
        self.mock.rewind(Duration::from_nanos(self.now.saturating_sub(now)));
        self.now = now;
    }
}
