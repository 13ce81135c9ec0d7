//! Random numbers from a seed.

/// The generator of Marsaglia, from a fixed seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() * n as f64) as usize
    }

    /// Returns the seconds to the next request of a Poisson process with a rate.
    pub(crate) fn gap(&mut self, rate: f64) -> f64 {
        -(1.0 - self.next()).ln() / rate
    }
}
