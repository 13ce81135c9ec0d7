// promise: bounded
//! Ten million keys against the room of a store for a million: the grants are bounded, the limited
//! keys stay limited, and the memory is that of the keys with room.
//!
//! The memory is the allocator's count, so this is a program of its own. (`table.rs` has the
//! resident memory of a table.)

use std::time::Duration;

use allocation_counter::measure;
use tollgate::{Builder, Clock, InvalidRule, Quota, RateLimiter, Reason};
use tollgate_verify::watchdog::Watchdog;

const KEYS: u64 = 10_000_000;
const ROOM: u64 = 1_000_000;
/// Keys that are refused before the flood, and during it.
const LIMITED: u64 = 100;
const BURST: u64 = 5;
const PER_HOUR: u64 = 5;
/// Buckets that keys without room share.
const SHARED: u64 = 1_024;

struct Store {
    name: &'static str,
    made: fn(Builder<u64>) -> Result<Builder<u64>, InvalidRule>,
    /// The most keys.
    most: u64,
    /// Their memory: on a clock that stands, and after evictions.
    bytes: [u64; 2],
}

const STORES: [Store; 2] = [
    Store {
        name: "map",
        made: |builder| builder.presize(ROOM as usize),
        most: ROOM,
        // "About 43 bytes and the key"; the map has twice the places once keys come and go.
        bytes: [(43 + 8) * ROOM, (43 + 8 + 19) * ROOM],
    },
    Store {
        name: "table",
        made: Builder::inline,
        most: ROOM.div_ceil(6) * 8,
        // The slots, the shared buckets and the counts.
        bytes: [22 * ROOM; 2],
    },
];

/// Asks for each key once, and for a limited key after each. The clock moves by `step` nanoseconds
/// a key: with 0 no key is evicted.
fn flood(store: &Store, step: u64) {
    let (clock, mock) = Clock::mock();
    let (mut built, mut most, mut granted) = (None, 0, 0);
    let mut limited = [BURST; LIMITED as usize];
    let held = measure(|| {
        let builder = RateLimiter::<u64>::builder(Quota::per_hour(PER_HOUR).burst(BURST)).clock(clock);
        let limiter = (store.made)(builder.max_keys(ROOM as usize)).unwrap().build();
        for key in 0..LIMITED {
            assert!(limiter.try_acquire_n(&key, BURST).is_ok());
        }
        for key in LIMITED..KEYS {
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
    let (stats, seconds) = (built.expect("it was just built").stats(), KEYS * step / 1_000_000_000);
    println!("{}, {step} ns a key: {granted} granted, {limited:?}, {held:?}, {stats:?}", store.name);
    // All keys with room, and the tokens of the shared buckets.
    let earned = PER_HOUR * seconds / 3_600;
    let had_room = stats.keys as u64 + stats.evicted - LIMITED;
    let bound = had_room + SHARED * (BURST + earned);
    // A key that gets room brings the debt of the bucket that it shared: some are granted nothing.
    let least = if step == 0 { ROOM - ROOM / 1_000 } else { had_room / 4 };
    assert!((least..=bound).contains(&granted), "{granted}, not {least} to {bound}");
    // The first burst and the tokens earned since: no more, and no less.
    assert_eq!(limited, [BURST + earned; LIMITED as usize]);
    assert!((ROOM..=store.most).contains(&most), "{most} keys");
    assert_eq!(stats.evicted > ROOM, step > 0);
    assert!(stats.shared > ROOM, "{stats:?}");
    let bytes = i64::try_from(store.bytes[usize::from(step > 0)]).expect("few");
    assert!(held.bytes_current <= bytes, "{held:?}, not {bytes}");
}

#[test]
fn ten_million_keys_reset_no_limit_of_a_store_of_a_million() {
    let _watchdog = Watchdog::of("ten million keys of each store", 1_800);
    for store in &STORES {
        // At the second step a million and a half of the keys are not full again.
        [0, 500_000].into_iter().for_each(|step| flood(store, step));
    }
}
