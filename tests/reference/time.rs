//! A mock clock by absolute readings.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::time::Duration;

use tollgate::{Clock, MockClock};
use tollgate_testing::reference::steps::LAST;

/// A mock clock that is set to readings, not moved by spans.
pub(crate) struct Time {
    mock: MockClock,
    now: u64,
}

impl Time {
    pub(crate) fn new() -> (Clock, Time) {
        Time::at(0)
    }

    pub(crate) fn at(now: u64) -> (Clock, Time) {
        let (clock, mock) = Clock::mock();
        let mut time = Time { mock, now: 0 };
        time.set(now);
        (clock, time)
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn set(&mut self, now: u64) {
        self.mock.advance(Duration::from_nanos(now.saturating_sub(self.now)));
        self.mock.rewind(Duration::from_nanos(self.now.saturating_sub(now)));
        self.now = now;
    }

    /// Sets the clock to a reading, or to the last there is.
    pub(crate) fn go_to(&mut self, now: u64) {
        self.set(now.min(LAST));
    }

    pub(crate) fn advance(&mut self, by: u64) {
        self.set(self.now + by);
    }
}
