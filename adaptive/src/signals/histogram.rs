//! A histogram of latencies that threads add to without a lock.

use std::fmt;
use std::time::Duration;

use crate::sync::{AtomicU32, MODEL, Ordering};

/// Buckets to an octave, as a power of two: the width of a bucket is 1/8 of its octave.
const SUB_BITS: u32 = if MODEL { 0 } else { 3 };
/// The first bucket begins at 2^10 ns, about a microsecond. A shorter latency is in it.
const FIRST_BIT: u32 = 10;
/// Octaves from 2^10 to 2^36 ns, about 69 s. A longer latency is in the last bucket.
const OCTAVES: u32 = if MODEL { 2 } else { 26 };
pub(crate) const BUCKETS: usize = (OCTAVES << SUB_BITS) as usize;

/// Counts of latencies by bucket, as an [`Inflight`](crate::Inflight) that adapts has them.
///
/// The counts only grow. A window is the difference of two looks, so no latency is lost between
/// windows, and readers need not coordinate.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_adaptive::Histogram;
///
/// let latencies = Histogram::default();
/// let before = latencies.look();
/// (1..=100).for_each(|millis| latencies.note(Duration::from_millis(millis)));
/// let slow = latencies.look().since(&before).quantile(900).unwrap();
/// assert!((80..=102).contains(&slow.as_millis()));
/// ```
// Relaxed: each count has a meaning alone, and orders no other memory.
pub struct Histogram {
    counts: [AtomicU32; BUCKETS],
}

/// The counts of a [`Histogram`], modulo 2^32, or their growth.
#[derive(Clone)]
pub struct LatencyCounts(pub(crate) [u32; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

impl Histogram {
    /// Counts a latency. One below 1 us or above a minute is in the first or the last bucket.
    pub fn note(&self, latency: Duration) {
        self.note_nanos(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a latency, in nanoseconds.
    #[inline]
    pub(crate) fn note_nanos(&self, nanos: u64) {
        self.counts[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn look(&self) -> LatencyCounts {
        LatencyCounts(std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)))
    }
}

#[inline]
pub(crate) fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.clamp(1 << FIRST_BIT, (1 << (FIRST_BIT + OCTAVES)) - 1);
    let octave = nanos.ilog2();
    let sub = (nanos >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    // Below `BUCKETS`, by the clamp.
    (((octave - FIRST_BIT) << SUB_BITS) + sub as u32) as usize
}

/// Returns the shortest latency of a bucket, in nanoseconds. For `BUCKETS` it is the end of the
/// last one.
pub(crate) const fn begin_of(bucket: usize) -> u64 {
    let (octave, sub) = ((bucket >> SUB_BITS) as u32, (bucket & ((1 << SUB_BITS) - 1)) as u64);
    (sub + (1 << SUB_BITS)) << (octave + FIRST_BIT - SUB_BITS)
}

impl LatencyCounts {
    pub(crate) const NONE: LatencyCounts = LatencyCounts([0; BUCKETS]);

    /// Returns the growth since an earlier look.
    #[must_use]
    pub fn since(&self, before: &LatencyCounts) -> LatencyCounts {
        LatencyCounts(std::array::from_fn(|bucket| self.0[bucket].wrapping_sub(before.0[bucket])))
    }

    /// Returns the latency that a share of the counted ones, in thousandths, does not exceed.
    ///
    /// It is off by an eighth at most. `None` if there are none.
    #[must_use]
    pub fn quantile(&self, thousandths: u16) -> Option<Duration> {
        self.at_rank(rank(self.total(), thousandths)).map(Duration::from_nanos)
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the latency that the first `rank` of the counted ones do not exceed, interpolated
    /// within its bucket; `None` if there are fewer.
    pub(crate) fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut before = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            let count = u64::from(*count);
            if before + count >= rank.max(1) {
                let (begin, width) = (begin_of(bucket), begin_of(bucket + 1) - begin_of(bucket));
                // At most the width times the count: below 2^34 * 2^32, so a u128.
                let part = u128::from(width) * u128::from(rank.max(1) - before) / u128::from(count);
                return Some(begin + part as u64);
            }
            before += count;
        }
        None
    }

    /// Returns the number of latencies in the buckets above `nanos`.
    pub(crate) fn above(&self, nanos: u64) -> u64 {
        self.0[bucket_of(nanos) + 1..].iter().map(|count| u64::from(*count)).sum()
    }
}

/// Returns the rank of the sample that a share of all, in thousandths, does not exceed.
pub(crate) fn rank(samples: u64, thousandths: u16) -> u64 {
    let rank = (u128::from(samples) * u128::from(thousandths.min(1_000)) / 1_000) as u64 + 1;
    rank.min(samples)
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.look().fmt(f)
    }
}

impl fmt::Debug for LatencyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyCounts")
            .field("total", &self.total())
            .field("p90", &self.quantile(900))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS {
            let (begin, end) = (begin_of(bucket), begin_of(bucket + 1));
            assert_eq!((bucket_of(begin), bucket_of(end - 1)), (bucket, bucket));
            assert!((end - begin) * 8 <= begin, "{bucket}: {begin} to {end}");
        }
        assert_eq!(begin_of(0), 1 << 10);
        assert_eq!(begin_of(BUCKETS), 1 << 36);
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_quantile_is_off_by_an_eighth_at_most() {
        let (histogram, mut all) = (Histogram::default(), Vec::new());
        let mut random = 1_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let nanos = (1 << 10) + (random >> 30);
            histogram.note_nanos(nanos);
            all.push(nanos);
        }
        all.sort_unstable();
        let counts = histogram.look();
        assert_eq!(counts.total(), 10_000);
        for rank in [1, 10, 500, 5_000, 9_000, 9_900, 10_000] {
            let (exact, read) = (all[rank - 1], counts.at_rank(rank as u64).unwrap());
            assert!(exact.abs_diff(read) * 8 <= exact, "{rank}: {exact} {read}");
        }
        assert_eq!(counts.at_rank(10_001), None);
        let of = |share: usize| Some(Duration::from_nanos(counts.at_rank(share as u64).unwrap()));
        assert_eq!(counts.quantile(900), of(9_001));
        assert_eq!((counts.quantile(0), counts.quantile(u16::MAX)), (of(1), of(10_000)));
        assert_eq!(counts.since(&counts).quantile(900), None);
        assert_eq!(counts.since(&counts).total(), 0);
    }

    #[test]
    fn a_window_is_a_difference_also_where_a_count_wraps() {
        let mut before = LatencyCounts::NONE;
        before.0[7] = u32::MAX - 1;
        let mut now = before.clone();
        now.0[7] = now.0[7].wrapping_add(5);
        assert_eq!(now.since(&before).total(), 5);
    }
}
