// promise: hostile-keys
//! Keys that all fall into one place.

use std::hash::{BuildHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use tollgate::{Clock, Quota, RateLimiter, WhenFull};
use tollgate_verify::watchdog::Watchdog;

const KEYS: u64 = 10_000;
const BURST: u64 = 5;
const BOUND: Duration = Duration::from_secs(2);

/// A hasher that returns the hash that the key names.
#[derive(Clone, Copy, Default)]
struct Said(u64);

impl BuildHasher for Said {
    type Hasher = Said;

    fn build_hasher(&self) -> Said {
        Said(0)
    }
}

impl Hasher for Said {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key writes one u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Collider {
    hash: u64,
    id: u64,
}

impl Hash for Collider {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Calls every verb on each of the keys, three times over.
fn each_key(name: &str, inline: bool, policy: WhenFull, hash: fn(u64) -> u64) {
    let (clock, mock) = Clock::mock();
    let quota = Quota::per_hour(BURST);
    let limiter =
        RateLimiter::<Collider>::builder(quota).hasher(Said::default()).clock(clock).when_full(policy);
    let limiter = if inline { limiter.max_keys(KEYS as usize).inline().unwrap() } else { limiter }.build();
    let keys: Vec<_> = (0..KEYS).map(|id| Collider { hash: hash(id), id }).collect();
    let mut granted = vec![0; keys.len()];
    let start = Instant::now();
    for _ in 0..3 {
        for (key, granted) in keys.iter().zip(&mut granted) {
            *granted += limiter.key(key).n(2).acquire_up_to().tokens();
            let _ = (limiter.peek(key), limiter.key(key).reserve());
            limiter.refund(key, 0);
        }
    }
    let most = *granted.iter().max().expect("there are keys");
    let held = limiter.len();
    mock.advance(Duration::from_secs(3 * 3_600));
    limiter.evict_idle();
    let mut again = 0;
    for key in &keys {
        again += u64::from(limiter.try_acquire(key).is_ok());
        limiter.remove(key);
    }
    let took = start.elapsed();
    println!(
        "{name}, inline {inline}, {policy:?}: {held} held, {most} granted to a key at most, {again} came back, {took:?}"
    );
    assert!(policy == WhenFull::Allow || most <= BURST, "{name}: {most} granted to a key");
    // In a table, keys of equal hash are one key.
    let least = if inline { 1 } else { 8 };
    assert!(held >= least && limiter.is_empty() && again > 0, "{name}: {held} held");
    // The bound is for optimised builds.
    assert!(cfg!(debug_assertions) || took < BOUND, "{name}: {took:?}");
}

#[test]
fn ten_thousand_keys_that_collide_are_decided_in_time() {
    let _watchdog = Watchdog::of("collisions", 600);
    let policies = [WhenFull::Share, WhenFull::Deny, WhenFull::Allow];
    for (policy, inline) in policies.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        each_key("one hash", inline, policy, |_| 7);
        each_key("low 32 bits equal", inline, policy, |id| id << 32);
        each_key("high 32 bits equal", inline, policy, |id| id);
        // Only the uppermost bits differ: as few as ten thousand keys need, and a few more.
        each_key("low 50 bits equal", inline, policy, |id| id << 50);
        each_key("low 48 bits equal", inline, policy, |id| id << 48);
        each_key("low 40 bits equal", inline, policy, |id| id << 40);
    }
}
