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
/// use tollgate::{Jitter, Quota, TokenBucket};
///
/// // A caller that waits wakes up to 20 ms late.
/// let jitter = Jitter::up_to(Duration::from_millis(20));
/// let bucket = TokenBucket::builder(Quota::per_second(100).burst(1)).jitter(jitter).build();
/// assert!((0..2).all(|_| bucket.ask().blocking_acquire().is_ok()));
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
    pub(crate) fn added_to(self, wait: Duration) -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_adds_and_never_more_than_it_says() {
        for most in [
            Duration::from_nanos(1),
            Duration::from_nanos(1_000),
            Duration::from_millis(20),
            Duration::from_secs(3_600),
        ] {
            let jitter = Jitter::up_to(most);
            for wait in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1)] {
                let waits: Vec<_> = (0..1_000).map(|_| jitter.added_to(wait)).collect();
                assert!(waits.iter().all(|with| (wait..=wait + most).contains(with)));
                assert!(waits.iter().any(|with| *with != waits[0]), "{most:?}: it is random");
            }
            for _ in 0..100 {
                assert_eq!(jitter.added_to(Duration::MAX), Duration::MAX);
            }
        }
        for none in [Jitter::NONE, Jitter::default(), Jitter::up_to(Duration::ZERO)] {
            assert_eq!(none, Jitter::NONE);
            assert_eq!(
                [Duration::from_nanos(0), Duration::from_nanos(7), Duration::MAX]
                    .map(|wait| none.added_to(wait)),
                [Duration::from_nanos(0), Duration::from_nanos(7), Duration::MAX]
            );
        }
        let _ = Jitter::up_to(Duration::MAX).added_to(Duration::MAX);
    }
}
