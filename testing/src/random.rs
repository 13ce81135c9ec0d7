//! Random numbers, the same in every run.

use std::thread;
use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014), from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number of 64 bits.
    #[expect(clippy::should_implement_trait, reason = "a sequence without an end is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number below `bound`, of any magnitude.
    pub fn any_below(&mut self, bound: u64) -> u64 {
        let bits = self.below(65 - u64::from(bound.leading_zeros()));
        self.below(bound.min(1 << bits))
    }

    /// Returns one of the values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the time to the next event of a Poisson process with a rate.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    /// Lets other threads go first, now and then.
    pub fn stumble(&mut self) {
        match self.below(200) {
            0..4 => thread::yield_now(),
            4 => thread::park_timeout(Duration::from_micros(self.below(200))),
            5 => thread::sleep(Duration::from_micros(self.below(100))),
            _ => {}
        }
    }
}
