//! Keys, drawn before they are asked for.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// How often each key comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    /// All as often.
    Uniform,
    /// The `n`th as often as 1 in `n`: Zipf's law with exponent 1.
    Zipf,
}

impl Popularity {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Popularity::Uniform => "uniform",
            Popularity::Zipf => "Zipf",
        }
    }

    /// Numbers below `keys`: the same for a thread in every run, others for another thread.
    ///
    /// # Panics
    ///
    /// If there are no keys.
    #[must_use]
    pub fn draw(self, keys: usize, thread: usize) -> Vec<u64> {
        let mut random = SmallRng::seed_from_u64(thread as u64);
        let draws = keys.clamp(16_000, 4_000_000);
        match self {
            Popularity::Uniform => (0..draws).map(|_| random.random_range(0..keys as u64)).collect(),
            Popularity::Zipf => {
                // Else the popular ones would be neighbours in a map that keeps them in order.
                let mut names: Vec<u64> = (0..keys as u64).collect();
                names.shuffle(&mut SmallRng::seed_from_u64(0));
                let zipf = Zipf::new(keys as f64, 1.0).expect("there are keys");
                (0..draws).map(|_| names[zipf.sample(&mut random) as usize - 1]).collect()
            }
        }
    }
}
