//! pingora-limits: counts events of the current interval in a sketch that keys share.

use std::time::Duration;

use pingora_limits::rate::Rate;

use super::key::Key;
use crate::{Limiter, Setup};

/// A bound on the events of an interval, as its documentation limits a rate.
pub(crate) struct Windows {
    events: Rate,
    most: isize,
}

/// Hashes a key. With these numbers, 6 keys in 10,000 share all their slots with earlier keys, and
/// are refused for them.
const HASHES: usize = 4;
const SLOTS_PER_KEY: usize = 4;
/// Slots by its own default, for any keys.
const SLOTS: usize = 1024;

/// The shortest interval. In a shorter one it panics where two threads end an interval: it takes
/// 1,000 from the milliseconds since it was made.
const SHORTEST: Duration = Duration::from_secs(1);

impl Windows {
    /// The broken law. A longer run would see two bursts where intervals meet: 185,000 tokens of
    /// 100,000/s in 40 ms.
    pub(crate) const BREAKS: &str = "it counts in windows, and grants nothing more until one is over: \
        83 in 100 of what it owes in the first 0.2 s";
}

impl<K: Key> Limiter<K> for Windows {
    fn new(setup: Setup) -> Self {
        let quota = setup.quota;
        let fill = quota.period().mul_f64(quota.capacity() as f64 / quota.tokens() as f64);
        // A bucket that fills sooner keeps its rate, and has the tokens of the interval as its
        // burst.
        let interval = fill.max(SHORTEST);
        let most = quota.tokens() as f64 * interval.as_secs_f64() / quota.period().as_secs_f64();
        let slots = SLOTS.max(setup.keys * SLOTS_PER_KEY);
        Windows {
            events: Rate::new_with_estimator_config(interval, HASHES, slots),
            most: most.round() as isize,
        }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.events.observe(key, 1) <= self.most
    }
}
