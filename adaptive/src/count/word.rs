//! The word of an [`Inflight`](crate::Inflight): its limit and its count, pure.
//!
//! ```text
//!  63            32 31             0
//! +----------------+---------------+
//! | limit          | in flight     |
//! +----------------+---------------+
//! ```

/// A state of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightWord(pub(crate) u64);

impl FlightWord {
    pub(crate) const fn new(limit: u32) -> FlightWord {
        FlightWord((limit as u64) << 32)
    }

    pub(crate) const fn limit(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn count(self) -> u32 {
        self.0 as u32
    }

    /// Returns the state with one request more, or `None` if the share of the limit, in 256ths, is
    /// used up.
    ///
    /// Each share admits at least one request: else a limit of 1 would admit only the highest
    /// priority. A limit of 0 is a pause, and admits none.
    #[inline]
    pub(crate) fn entered(self, share: u16) -> Option<FlightWord> {
        let most = (u64::from(self.limit()) * u64::from(share)) >> 8;
        let is_first = || self.count() == 0 && self.limit() > 0;
        // The count is below a limit, so it does not carry.
        (u64::from(self.count()) < most || is_first()).then(|| FlightWord(self.0 + 1))
    }

    /// Returns the state with another limit. The requests in flight stay.
    pub(crate) fn with_limit(self, limit: u32) -> FlightWord {
        FlightWord(FlightWord::new(limit).0 | u64::from(self.count()))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn no_share_admits_more_than_the_limit_and_each_admits_one() {
        assert!(FlightWord::new(0).entered(256).is_none());
        for limit in 1..300 {
            for share in [1, 64, 128, 192, 230, 255, 256] {
                let mut word = FlightWord::new(limit);
                while let Some(next) = word.entered(share) {
                    assert_eq!((next.limit(), next.count()), (limit, word.count() + 1));
                    word = next;
                }
                let most = (limit * u32::from(share) / 256).max(1);
                assert_eq!(word.count(), most, "{limit} {share}");
            }
        }
    }

    #[test]
    fn a_limit_changes_no_count() {
        for (limit, count) in [(1, 0), (7, 7), (u32::MAX, u32::MAX), (3, 900)] {
            let word = FlightWord(FlightWord::new(limit).0 | u64::from(count));
            for other in [1, 2, u32::MAX] {
                assert_eq!((word.with_limit(other).limit(), word.with_limit(other).count()), (other, count));
            }
            assert_eq!(word.entered(256).is_some(), count < limit);
        }
    }
}
