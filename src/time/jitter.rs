//! Jitter: a random time on top of a wait, so that callers with the same wait do not come back
//! together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::time::clock::nanos_of;

/// A random time, up to a bound, that is added to waits. Jitter never shortens a wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Jitter;
///
/// let jitter = Jitter::up_to(Duration::from_millis(20));
/// let wait = jitter.added_to(Duration::from_millis(100));
/// assert!((Duration::from_millis(100)..=Duration::from_millis(120)).contains(&wait));
/// assert_eq!(Jitter::NONE.added_to(wait), wait);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    most: Duration,
}

impl Jitter {
    /// Jitter that adds nothing.
    pub const NONE: Jitter = Jitter { most: Duration::ZERO };

    /// Returns jitter that adds from nothing up to `most`, all times equally likely.
    #[must_use]
    pub const fn up_to(most: Duration) -> Jitter {
        Jitter { most }
    }

    /// Returns the wait plus a random time; the sum saturates.
    #[must_use]
    pub fn added_to(self, wait: Duration) -> Duration {
        let most = nanos_of(self.most);
        if most == 0 {
            return wait;
        }
        // Each `RandomState` of a thread has keys of its own; under them the hash of `()` is random
        // enough.
        let random = RandomState::new().hash_one(());
        // `random / 2^64` of `most + 1` nanoseconds, so at most `most`.
        let extra = (u128::from(random) * (u128::from(most) + 1)) >> 64;
        wait.saturating_add(Duration::from_nanos(extra as u64))
    }
}
