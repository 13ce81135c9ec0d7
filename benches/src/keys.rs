//! Keys, drawn before the timing.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// The frequency of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    /// The same frequency for all keys.
    Uniform,
    /// Zipf's law with exponent 1: the frequency of the `n`th key is in proportion to 1 / `n`.
    Zipf,
}

impl Popularity {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Popularity::Uniform => "uniform",
            Popularity::Zipf => "Zipf",
        }
    }

    /// Returns numbers below `keys`: the same for a thread in every run, others for another thread.
    pub fn draw(self, keys: usize, thread: usize) -> Vec<u64> {
        let mut random = SmallRng::seed_from_u64(thread as u64);
        let draws = keys.clamp(16_000, 4_000_000);
        match self {
            Popularity::Uniform => (0..draws).map(|_| random.random_range(0..keys as u64)).collect(),
            Popularity::Zipf => {
                // Otherwise the popular keys would be neighbours in a map that keeps them in order.
                let mut names: Vec<u64> = (0..keys as u64).collect();
                names.shuffle(&mut SmallRng::seed_from_u64(0));
                let zipf = Zipf::new(keys as f64, 1.0).expect("there are keys");
                (0..draws).map(|_| names[zipf.sample(&mut random) as usize - 1]).collect()
            }
        }
    }
}
