//! Keys that note their use, and a hasher by which many keys are alike.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::OnceLock;

use tollgate::{Equivalent, Quota, RateLimiter, ToKey, WhenFull};

use super::super::time::Time;

pub(super) const KEYS: u64 = 256;

/// A hasher of only some bits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    bits: u64,
}

impl Alike {
    pub(crate) const ALL: [Alike; 3] = [Alike { bits: u64::MAX }, Alike { bits: 3 }, Alike { bits: 0 }];

    /// Returns the bits that are hashed: two keys that have the same are alike.
    pub(super) fn of(self, key: u64) -> u64 {
        key & self.bits
    }
}

impl Default for Alike {
    fn default() -> Alike {
        Alike::ALL[0]
    }
}

pub(crate) struct Mixed(Alike, u64);

impl BuildHasher for Alike {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(*self, 0)
    }
}

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key is one u64");
    }

    /// Mixes the key by SplitMix64's last steps.
    fn write_u64(&mut self, key: u64) {
        let mixed = self.0.of(key).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.1 = mixed ^ (mixed >> 27);
    }

    fn finish(&self) -> u64 {
        self.1
    }
}

pub(super) type Limiter = RateLimiter<u64, Quota, Alike>;

/// A key that notes whether it was found, and whether one was made for the limiter to hold.
pub(super) struct Probe {
    pub(super) key: u64,
    pub(super) found: Cell<bool>,
    pub(super) made: Cell<bool>,
}

impl Probe {
    pub(super) fn of(key: u64) -> Probe {
        Probe { key, found: Cell::new(false), made: Cell::new(false) }
    }
}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Equivalent<u64> for Probe {
    fn equivalent(&self, key: &u64) -> bool {
        let same = self.key == *key;
        self.found.set(self.found.get() || same);
        same
    }
}

impl ToKey<u64> for Probe {
    fn to_key(&self) -> u64 {
        self.made.set(true);
        self.key
    }
}

/// Returns the least key that shares a bucket with this one. It takes from buckets once to find
/// out.
pub(super) fn sharer(hasher: Alike, key: u64) -> u64 {
    static SHARERS: OnceLock<[Vec<u64>; 3]> = OnceLock::new();
    let all = SHARERS.get_or_init(|| {
        Alike::ALL.map(|hasher| {
            let burst = 2 * KEYS;
            let (clock, _time) = Time::at(0);
            let limiter = RateLimiter::<u64>::builder(Quota::per_day(1).burst(burst)).clock(clock);
            let limiter = limiter.hasher(hasher).max_keys(0).when_full(WhenFull::Share).build();
            let sharer = |key| match burst - limiter.peek(&key).remaining() {
                0 => {
                    limiter.try_acquire_n(&key, key + 1).expect("there are enough");
                    key
                }
                // The first key of a bucket took a number that tells its key.
                taken => taken - 1,
            };
            (0..KEYS).map(sharer).collect()
        })
    });
    let which = Alike::ALL.iter().position(|one| *one == hasher).expect("it is one of them");
    all[which][key as usize]
}
