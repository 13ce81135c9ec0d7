//! Windows spelled out: a list of grants, and counts by the numbers of sub-windows.
//!
//! This shares no code with the crate. A time is in nanoseconds on the limiter's clock.

use std::collections::BTreeMap;

/// The way in which tokens are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the first use of a key on.
    FirstUse,
    /// Aligned to multiples of the period.
    Aligned,
    /// The number of sub-windows.
    Sliding(u64),
    /// This window and the last one, by its share.
    Weighted,
}

/// A window of one key.
#[derive(Clone, Debug)]
pub struct Spelled {
    /// The tokens of a window.
    pub limit: u64,
    period: u64,
    kind: Kind,
    /// Tokens counted in each (sub-)window.
    counts: BTreeMap<u64, u64>,
    /// The tick of the first use.
    start: u64,
    /// Grants, as time and tokens.
    pub log: Vec<(u64, u64)>,
}

/// Parts of a weighted window, and ticks of a window from the first use.
const PARTS: u64 = 1 << 16;

impl Spelled {
    /// Returns a window without grants.
    pub fn new(limit: u64, period: u64, kind: Kind) -> Spelled {
        Spelled { limit, period, kind, counts: BTreeMap::new(), start: 0, log: Vec::new() }
    }

    /// Returns the number of the (sub-)window at a time.
    fn index(&self, at: u64) -> u64 {
        let times = |many: u64| (u128::from(at) * u128::from(many) / u128::from(self.period)) as u64;
        match self.kind {
            // One count for each window, numbered by its start.
            Kind::FirstUse => match times(PARTS) {
                tick if tick - self.start <= PARTS && !self.counts.is_empty() => self.start,
                tick => tick,
            },
            Kind::Aligned | Kind::Weighted => times(1),
            Kind::Sliding(subs) => times(subs),
        }
    }

    fn count(&self, index: u64) -> u64 {
        self.counts.get(&index).copied().unwrap_or(0)
    }

    /// Returns the numbers of the windows whose tokens count at a time, the newest first.
    fn live(&self, at: u64) -> Vec<u64> {
        let before = match self.kind {
            Kind::FirstUse | Kind::Aligned => 0,
            Kind::Sliding(subs) => subs,
            Kind::Weighted => 1,
        };
        let index = self.index(at);
        (0..=before).filter_map(|age| index.checked_sub(age)).collect()
    }

    /// Returns the tokens that count at a time, in 2^-16 tokens.
    pub fn used(&self, at: u64) -> u64 {
        let live = self.live(at);
        if self.kind != Kind::Weighted {
            return live.iter().map(|index| self.count(*index)).sum::<u64>() * PARTS;
        }
        let into = u128::from(at % self.period) * u128::from(PARTS) / u128::from(self.period);
        let before = live.get(1).map_or(0, |index| self.count(*index));
        self.count(live[0]) * PARTS + before * (PARTS - into as u64)
    }

    /// Returns the tokens that are left at a time.
    pub fn remaining(&self, at: u64) -> u64 {
        (self.limit * PARTS).saturating_sub(self.used(at)) / PARTS
    }

    /// Returns whether `n` tokens are left at a time.
    pub fn grants(&self, at: u64, n: u64) -> bool {
        n == 0 || self.used(at) + n * PARTS <= self.limit * PARTS
    }

    /// Counts `n` tokens, whether they are there or not.
    pub fn count_in(&mut self, at: u64, n: u64) {
        if n == 0 {
            return;
        }
        let index = self.index(at);
        if let Kind::FirstUse = self.kind
            && !self.counts.contains_key(&index)
        {
            self.counts.clear();
            self.start = index;
        }
        *self.counts.entry(index).or_default() += n;
        self.log.push((at, n));
    }

    /// Takes back up to `n` tokens that count, the newest first.
    pub fn refund(&mut self, at: u64, mut n: u64) {
        for index in self.live(at) {
            if let Some(count) = self.counts.get_mut(&index) {
                let back = n.min(*count);
                *count -= back;
                n -= back;
                if *count == 0 {
                    self.counts.remove(&index);
                }
            }
        }
    }

    /// Forgets all tokens.
    pub fn forget(&mut self) {
        self.counts.clear();
    }

    /// Returns the tokens granted in the `span` that ends with a time.
    pub fn granted_in(&self, span: u64, at: u64) -> u64 {
        self.log.iter().filter(|(then, _)| at - then < span).map(|(_, n)| n).sum()
    }
}
