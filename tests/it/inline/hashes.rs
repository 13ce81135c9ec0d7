//! Custom hashers: keys are told apart by 63 bits of their hash, and by nothing else.

use std::hash::{BuildHasher, Hasher};

use tollgate::{Quota, RateLimiter, Reason, WhenFull};

use crate::support::{Plain, Time, Twin, size};

/// Keys of equal hash are one key, as documented.
#[test]
fn keys_whose_hashes_are_alike_share_a_bucket() {
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<Twin>::builder(Quota::per_hour(5))
        .hasher(Plain::default())
        .clock(clock)
        .max_keys(1_000)
        .inline()
        .unwrap()
        .build();
    let granted = (0..10_000).filter(|id| limiter.try_acquire(&Twin { hash: 77, id: *id }).is_ok()).count();
    assert_eq!((granted, limiter.len()), (5, 1));
    assert!(limiter.try_acquire(&Twin { hash: 1 << 40, id: 0 }).is_ok());
    assert!(limiter.remove(&Twin { hash: 77, id: 123_456 }));
    assert_eq!(limiter.len(), 1);
    // 0 is a hash as any other.
    assert!(limiter.try_acquire_n(&Twin { hash: 0, id: 1 }, 5).is_ok());
    assert!(limiter.try_acquire_n(&Twin { hash: 0, id: 2 }, 1).is_err());
    assert!(limiter.remove(&Twin { hash: 0, id: 3 }) && limiter.len() == 1);
}

/// A hasher that returns a key times a factor.
#[derive(Clone, Copy, Default)]
struct Times(u64, u64);

impl BuildHasher for Times {
    type Hasher = Times;

    fn build_hasher(&self) -> Times {
        *self
    }
}

impl Hasher for Times {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key is one u64");
    }

    fn write_u64(&mut self, key: u64) {
        self.1 = key.wrapping_mul(self.0);
    }

    fn finish(&self) -> u64 {
        self.1
    }
}

/// Hashes that differ in few of their bits spread over the table: it holds as many keys as it is
/// made for.
#[test]
fn hashes_that_are_small_numbers_spread() {
    let keys = size(6_000, 60_000);
    for factor in [1, 2, 3, 8, 1_000, 4_096, 1 << 32, 1 << 47, u64::MAX] {
        let (clock, _time) = Time::new();
        let limiter = RateLimiter::<u64>::builder(Quota::per_hour(1)).hasher(Times::default()).clock(clock);
        let limiter = limiter
            .hasher(Times(factor, 0))
            .max_keys(keys as usize)
            .inline()
            .unwrap()
            .when_full(WhenFull::Deny)
            .build();
        let (mut full, mut alike) = (0, 0);
        for key in 0..keys {
            match limiter.try_acquire(&key).map_err(|denied| denied.reason()) {
                Ok(_) => {}
                Err(Reason::Full) => full += 1,
                Err(_) => alike += 1,
            }
        }
        println!("times {factor}: {full} found no room, {alike} had the bucket of another");
        assert!(full * 1_000 < keys, "times {factor}: {full} of {keys} found no room");
        // The uppermost bit alone is not in a fingerprint.
        assert!(alike * 1_000 < keys, "times {factor}: {alike} of {keys} had the bucket of another");
    }
}
