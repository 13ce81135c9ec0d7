//! No limiter, for the time of the loop itself.

use crate::{Limiter, Setup};

/// Grants everything, without looking.
pub struct Nothing;

impl<K> Limiter<K> for Nothing {
    fn new(_: Setup) -> Self {
        Nothing
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        // The key is at hand, as any limiter needs it.
        std::hint::black_box(key);
        true
    }
}
