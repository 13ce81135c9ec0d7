//! The two rules in plain integers.

use tollgate::Window;
use tollgate_testing::reference::windows::{Kind, Spelled};

use crate::support::nanos;

/// A bucket or a window, at readings that never go back.
pub(super) trait Ideal {
    fn burst(&self) -> u64;
    /// Returns the whole tokens.
    fn left(&self, now: u64) -> u64;
    /// Returns the tokens that are owed.
    fn owed(&self, _now: u64) -> u64 {
        0
    }

    fn grants(&self, now: u64, n: u64) -> bool;
    /// Takes tokens, whether they are there or not.
    fn take(&mut self, now: u64, n: u64);
    fn give(&mut self, now: u64, n: u64);

    /// Returns whether `n` tokens are granted after a wait, and not a nanosecond before.
    fn is_due(&self, now: u64, wait: u64, n: u64) -> bool {
        self.grants(now + wait, n) && (wait == 0 || !self.grants(now + wait - 1, n))
    }
}

/// A token bucket, counted in the time that its tokens take. Each time is a whole number of ticks,
/// so the crate rounds nothing either.
pub(super) struct Bucket {
    /// Nanoseconds of a token.
    token: i64,
    burst: i64,
    level: i64,
    at: u64,
}

impl Bucket {
    pub(super) fn new(token: u64, burst: u64) -> Bucket {
        let (token, burst) = (token as i64, burst as i64);
        Bucket { token, burst, level: token * burst, at: 0 }
    }

    fn level(&self, now: u64) -> i64 {
        (self.level + (now - self.at) as i64).min(self.token * self.burst)
    }
}

impl Ideal for Bucket {
    fn burst(&self) -> u64 {
        self.burst as u64
    }

    fn left(&self, now: u64) -> u64 {
        self.level(now).max(0) as u64 / self.token as u64
    }

    fn owed(&self, now: u64) -> u64 {
        (-self.level(now)).max(0) as u64 / self.token as u64 + 1
    }

    fn grants(&self, now: u64, n: u64) -> bool {
        n == 0 || self.level(now) >= n as i64 * self.token
    }

    fn take(&mut self, now: u64, n: u64) {
        (self.level, self.at) = (self.level(now) - n as i64 * self.token, now);
    }

    fn give(&mut self, now: u64, n: u64) {
        (self.level, self.at) = (self.level(now) + n as i64 * self.token, now);
    }
}

/// A window that is spelled out.
pub(super) struct Counted(Spelled);

impl Counted {
    /// Returns a window of another limit, with the sub-windows of `window`.
    pub(super) fn new(window: Window, limit: u64) -> Counted {
        let (period, text) = (nanos(window.period()), window.to_string());
        let kind = match window.sub_window() {
            Some(sub) => Kind::Sliding(period.div_ceil(nanos(sub))),
            None if text.ends_with("weighted") => Kind::Weighted,
            None if text.ends_with("utc") => Kind::Aligned,
            None => Kind::FirstUse,
        };
        Counted(Spelled::new(limit, period, kind))
    }
}

impl Ideal for Counted {
    fn burst(&self) -> u64 {
        self.0.limit
    }

    fn left(&self, now: u64) -> u64 {
        self.0.remaining(now)
    }

    fn grants(&self, now: u64, n: u64) -> bool {
        self.0.grants(now, n)
    }

    fn take(&mut self, now: u64, n: u64) {
        self.0.count_in(now, n);
    }

    fn give(&mut self, now: u64, n: u64) {
        self.0.refund(now, n);
    }
}
