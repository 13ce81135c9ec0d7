//! Decisions to be counted by callgrind, which is blind to what else the machine does: 20,000 of each kind, each in
//! a function of its own.
//!
//! ```text
//! cargo build --release --manifest-path benches/Cargo.toml --bin instructions
//! valgrind --tool=callgrind --callgrind-out-file=callgrind.out benches/target/release/instructions
//! callgrind_annotate --inclusive=yes callgrind.out | grep -E 'instructions::(grant|refuse|keyed|pinned)'
//! ```
//!
//! Divide by 20,000.

use foldhash::fast::FixedState;
use tollgate::{Quota, RateLimiter, TokenBucket};

const DECISIONS: u64 = 20_000;
const KEYS: u64 = 512;

type Limiter = RateLimiter<u64, FixedState>;

#[inline(never)]
fn grant(bucket: &TokenBucket) -> u64 {
    (0..DECISIONS).map(|_| u64::from(bucket.try_acquire().is_ok())).sum()
}

#[inline(never)]
fn refuse(bucket: &TokenBucket) -> u64 {
    (0..DECISIONS).map(|_| u64::from(bucket.try_acquire().is_err())).sum()
}

#[inline(never)]
fn keyed(limiter: &Limiter) -> u64 {
    (0..DECISIONS).map(|n| u64::from(limiter.try_acquire(&(n % KEYS)).is_ok())).sum()
}

#[inline(never)]
fn pinned(limiter: &Limiter) -> u64 {
    let pinned = limiter.pin();
    (0..DECISIONS).map(|n| u64::from(pinned.try_acquire(&(n % KEYS)).is_ok())).sum()
}

fn main() {
    let plenty = Quota::per_second(1_000_000_000).burst(1_000_000);
    let (full, empty) = (TokenBucket::new(plenty), TokenBucket::new(Quota::per_hour(1)));
    assert!(empty.try_acquire().is_ok());
    let limiter = Limiter::builder(plenty).build();
    for key in 0..KEYS {
        assert!(limiter.try_acquire(&key).is_ok());
    }
    for done in [grant(&full), refuse(&empty), keyed(&limiter), pinned(&limiter)] {
        assert_eq!(done, DECISIONS, "each kind is what it says");
    }
}
