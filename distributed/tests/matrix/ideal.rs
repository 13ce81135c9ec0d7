//! A token bucket in real numbers.

use tollgate::Quota;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ideal {
    burst: f64,
    /// Tokens a second.
    rate: f64,
    level: f64,
    last: f64,
}

impl Ideal {
    /// Returns a full bucket.
    pub(crate) fn new(quota: Quota) -> Ideal {
        let burst = quota.capacity() as f64;
        let rate = quota.tokens() as f64 / quota.period().as_secs_f64();
        Ideal { burst, rate, level: burst, last: 0.0 }
    }

    /// Returns the tokens at a time, in seconds.
    pub(crate) fn at(&mut self, now: f64) -> &mut f64 {
        self.level = (self.level + (now - self.last) * self.rate).min(self.burst);
        self.last = now;
        &mut self.level
    }

    /// Takes `n` tokens, all or none.
    pub(crate) fn take(&mut self, n: u64, now: f64) -> bool {
        let level = self.at(now);
        let is_there = *level >= n as f64;
        if is_there {
            *level -= n as f64;
        }
        is_there
    }

    /// Gives `n` tokens back.
    pub(crate) fn put(&mut self, n: u64, now: f64) {
        let level = self.at(now);
        *level += n as f64;
    }
}
