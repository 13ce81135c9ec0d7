//! Random numbers, the same in every run.

use std::thread;
use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014), from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
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
