//! The mutex design with the lock and the clock of crates.

use parking_lot::Mutex;
use quanta::{Clock, Instant};

use super::mutex::{Level, Terms};
use crate::{Limiter, Setup};

/// One bucket behind `parking_lot`'s mutex, on a clock that it holds: `Instant::now()` would look
/// for a global one.
#[derive(Debug)]
pub(crate) struct ParkingLot {
    bucket: Mutex<Level<Instant>>,
    clock: Clock,
    terms: Terms,
}

impl Limiter<()> for ParkingLot {
    fn new(setup: Setup) -> Self {
        let (clock, terms) = (Clock::new(), Terms::new(setup.quota));
        ParkingLot { bucket: Mutex::new(terms.full(clock.now())), clock, terms }
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        // Ahead of the lock, as in `Terms::lock_and_take`.
        let now = self.clock.now();
        self.terms.take(&mut self.bucket.lock(), now)
    }
}
