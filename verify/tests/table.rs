// promise: bounded
//! A table has in memory the keys that came. A program of its own: the resident size is that of the
//! process, and an allocator that counts writes zeros itself.

#[path = "common/resident.rs"]
mod resident;

use std::time::{Duration, Instant};

use tollgate::{Clock, Quota, RateLimiter, WhenFull};
use tollgate_verify::watchdog::Watchdog;

use resident::resident;

/// A table for a million keys has the memory of the keys in it, at most that of its slots. A key
/// that is asked for all the while gets its tokens only.
#[test]
fn ten_million_keys_stay_within_the_memory_of_a_table() {
    const KEYS: u64 = 10_000_000;
    const ROOM: usize = 1_000_000;
    let _watchdog = Watchdog::of("ten million keys of a table", 1_800);
    for (policy, step) in
        [(WhenFull::Share, 0), (WhenFull::Deny, 0), (WhenFull::Allow, 0), (WhenFull::Share, 100_000)]
    {
        let (clock, mock) = Clock::mock();
        let before = resident();
        let begun = Instant::now();
        let limiter = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(clock);
        let limiter = limiter.max_keys(ROOM).inline().unwrap().when_full(policy).build();
        let built = begun.elapsed();
        let more = || resident().zip(before).map_or(0, |(after, before)| after - before);
        let empty = more();
        let mut granted = 0;
        let mut few = 0;
        for key in 0..KEYS {
            if key % 1_000 == 0 {
                granted += u64::from(limiter.try_acquire(&u64::MAX).is_ok());
            }
            if key == 100 {
                few = more();
            }
            let _ = limiter.try_acquire(&key);
            mock.advance(Duration::from_nanos(step));
        }
        let (all, stats) = (more(), limiter.stats());
        println!(
            "{policy:?}, {step} ns a key: built in {built:?} with {empty} bytes in memory, \
             {few} with 100 keys, {all} with all; {granted} grants of the key between; {stats:?}"
        );
        assert!(empty <= 200_000 && few <= 1_000_000, "{policy:?}, {step}: {empty}, then {few} bytes");
        // Beside the slots there are the shared buckets, and the counts.
        assert!(all <= 22 * 1_048_576, "{policy:?}, {step}: {all} bytes");
        assert!(stats.keys <= ROOM.div_ceil(6) * 8 && stats.keys >= ROOM, "{stats:?}");
        assert_eq!(stats.evicted > KEYS / 2, step > 0);
        let seconds = KEYS * step / 1_000_000_000;
        assert!((1 + seconds / 2..=1 + seconds).contains(&granted), "{granted} grants in {seconds} s");
    }
}
