// promise: bounded
//! Ten times the keys that a store has room for: the grants are bounded, the limited keys stay
//! limited, and the memory is that of the keys with room.
//!
//! With `FULL=1` there are ten million keys, else an eighth of them.
//!
//! The memory is the allocator's count, so this is a program of its own. (`table.rs` has the
//! resident memory of a table.)

use std::time::Duration;

use allocation_counter::measure;
use tollgate::{Builder, Clock, InvalidRule, Quota, RateLimiter, Reason};
use tollgate_testing::size;
use tollgate_verify::watchdog::Watchdog;

const FULL_ROOM: u64 = 1_000_000;
/// Keys that are refused before the flood, and during it.
const LIMITED: u64 = 100;
const BURST: u64 = 5;
const PER_HOUR: u64 = 5;
/// Buckets that keys without room share.
const SHARED: u64 = 1_024;

struct Store {
    name: &'static str,
    made: fn(Builder<u64>) -> Result<Builder<u64>, InvalidRule>,
    /// The most keys with this room.
    most: fn(u64) -> u64,
    /// Bytes of a key, with the shared buckets and the counts: of those that came, and after
    /// evictions.
    bytes: [u64; 2],
}

const STORES: [Store; 2] = [
    Store {
        name: "map",
        made: |builder| builder.presize(FULL_ROOM as usize),
        most: |room| room,
        // "About 43 bytes and the key, and up to 62 once keys were evicted".
        bytes: [43 + 8, 62 + 8],
    },
    Store { name: "table", made: Builder::inline, most: |room| room.div_ceil(6) * 8, bytes: [22; 2] },
];

/// Asks for each key once, and for a limited key after each. The clock moves by `step` nanoseconds
/// a key: with 0 no key is evicted.
fn flood(store: &Store, room: u64, step: u64) {
    let keys = 10 * room;
    let (clock, mock) = Clock::mock();
    let (mut built, mut most, mut granted) = (None, 0, 0);
    let mut limited = [BURST; LIMITED as usize];
    let held = measure(|| {
        let builder = RateLimiter::<u64>::builder(Quota::per_hour(PER_HOUR).burst(BURST)).clock(clock);
        let limiter = (store.made)(builder.max_keys(room as usize)).unwrap().build();
        for key in 0..LIMITED {
            assert!(limiter.try_acquire_n(&key, BURST).is_ok());
        }
        for key in LIMITED..keys {
            granted += u64::from(limiter.try_acquire(&key).is_ok());
            most = most.max(limiter.len() as u64);
            match limiter.try_acquire(&(key % LIMITED)) {
                Ok(_) => limited[(key % LIMITED) as usize] += 1,
                Err(denied) => assert_eq!(denied.reason(), Reason::Empty, "after {key}"),
            }
            mock.advance(Duration::from_nanos(step));
        }
        built = Some(limiter);
    });
    let (stats, seconds) = (built.expect("it was just built").stats(), keys * step / 1_000_000_000);
    println!("{}, {step} ns a key: {granted} granted, {held:?}, {stats:?}", store.name);
    // All keys with room, and the tokens of the shared buckets.
    let earned = PER_HOUR * seconds / 3_600;
    let had_room = stats.keys as u64 + stats.evicted - LIMITED;
    let bound = had_room + SHARED * (BURST + earned);
    // A key that gets room brings the debt of the bucket that it shared: some are granted nothing.
    let least = if step == 0 { room - room / 1_000 } else { had_room / 4 };
    assert!((least..=bound).contains(&granted), "{granted}, not {least} to {bound}");
    // The first burst and the tokens earned since: no more, and no less.
    assert_eq!(limited, [BURST + earned; LIMITED as usize]);
    assert!((room..=(store.most)(room)).contains(&most), "{most} keys");
    assert_eq!(stats.evicted > room, step > 0);
    assert!(stats.shared > room, "{stats:?}");
    let bytes = (store.bytes[usize::from(step > 0)] * room).cast_signed();
    assert!(held.bytes_current <= bytes, "{held:?}, not {bytes}");
}

#[test]
fn a_flood_resets_no_limit() {
    let room = size(FULL_ROOM / 8, FULL_ROOM);
    let _watchdog = Watchdog::of("a flood of each store", 1_800);
    for store in &STORES {
        // At the second step the buckets of more keys than have room are not full again.
        [0, 500_000 * FULL_ROOM / room].into_iter().for_each(|step| flood(store, room, step));
    }
}
