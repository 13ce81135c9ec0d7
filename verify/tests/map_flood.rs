// promise: bounded
//! Ten million keys against the map's room for a million: the bound is exact, the limited keys stay
//! limited, and the memory is that of the keys with room.
//!
//! The memory is the allocator's count, so this is a program of its own.

use allocation_counter::measure;
use tollgate::{Clock, Quota, RateLimiter, Reason};
use tollgate_verify::watchdog::Watchdog;

const KEYS: u64 = 10_000_000;
const ROOM: u64 = 1_000_000;
/// Keys that are refused before the flood, and during it.
const LIMITED: u64 = 100;
/// Bytes of a held key: "about 43 bytes and the key".
const BYTES: u64 = 43 + 8;

#[test]
fn ten_million_keys_reset_no_limit_of_a_map_of_a_million() {
    let _watchdog = Watchdog::of("ten million keys of a map", 1_800);
    let (clock, _mock) = Clock::mock();
    let (mut built, mut most) = (None, 0);
    let held = measure(|| {
        let limiter = RateLimiter::<u64>::builder(Quota::per_hour(5)).clock(clock);
        let limiter = limiter.presize(ROOM as usize).unwrap().max_keys(ROOM as usize).build();
        for key in 0..LIMITED {
            assert!(limiter.try_acquire_n(&key, 5).is_ok());
        }
        for key in LIMITED..KEYS {
            let _ = limiter.try_acquire(&key);
            most = most.max(limiter.len() as u64);
            let limited = key % LIMITED;
            let denied = limiter.try_acquire(&limited).expect_err("a flood resets no limit");
            assert_eq!(denied.reason(), Reason::Empty, "{limited} after {key}");
        }
        built = Some(limiter);
    });
    let stats = built.expect("it was just built").stats();
    println!("{held:?}, {stats:?}");
    assert_eq!((most, stats.evicted, stats.shared), (ROOM, 0, KEYS - ROOM));
    let bytes = i64::try_from(BYTES * ROOM).expect("few");
    assert!(held.bytes_current <= bytes, "{held:?}, not {bytes}");
}
