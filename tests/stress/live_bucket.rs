// promise: law
//! A key has one live bucket at a time.

use super::*;

/// The quota is five an hour, while keys enter the map, share buckets and are swept. Each key gets
/// five at most, and all five where there is ample room.
#[test]
fn a_key_has_one_live_bucket() {
    for store in [Store::Map, Store::Table] {
        for (keys, room) in [(64, 64), (64, 1_000), (600, 64), (64, 1)] {
            one_live_bucket(store, keys, room);
        }
    }
}

fn one_live_bucket(store: Store, keys: usize, room: usize) {
    let quota = Quota::per_hour(1).burst(5);
    let limiter = store.room(RateLimiter::<u64>::builder(quota), room).build();
    let granted = counters(keys);
    let left = AtomicU64::new(40_000);
    oversubscribed(
        |index, goes_on| {
            let mut random = Random(index as u64);
            while goes_on() {
                let key = random.below(keys as u64);
                if limiter.try_acquire(&key).is_ok() {
                    granted[key as usize].fetch_add(1, Relaxed);
                }
                let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                random.stumble();
            }
        },
        || {
            while left.load(Relaxed) > 0 {
                assert_eq!(limiter.evict_idle(), 0, "nobody is full");
                thread::yield_now();
            }
        },
    );
    for (key, granted) in granted.into_iter().enumerate() {
        let granted = granted.into_inner();
        assert!(granted <= 5, "{granted} granted to {key} of {keys} in {room}");
        // Two threads that insert one key hold two places for a moment.
        assert!(granted == 5 || room < keys * 2, "{granted} granted to {key}, which has room");
    }
    let most = keys.min(store.places(room));
    // In a table a few keys may find both of their sets full.
    let least = if store == Store::Table { most * 8 / 10 } else { most };
    assert!((least..=most).contains(&limiter.len()), "{:?}", limiter.stats());
}

/// A key that notes whether the limiter had to make an owned one.
struct Probe(u64, Cell<bool>);

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<u64> for Probe {
    fn equivalent(&self, key: &u64) -> bool {
        self.0 == *key
    }
}

impl ToKey<u64> for Probe {
    fn to_key(&self) -> u64 {
        self.1.set(true);
        self.0
    }
}

type Fixed = BuildHasherDefault<DefaultHasher>;

/// Returns keys that share no overflow bucket with the first `hot`.
fn passers_by(hot: u64) -> Vec<u64> {
    let (clock, _mock) = Clock::mock();
    let outside = RateLimiter::<u64>::builder(Quota::per_hour(1))
        .hasher(Fixed::default())
        .clock(clock)
        .max_keys(0)
        .build();
    for key in 0..hot {
        assert!(outside.try_acquire(&key).is_ok(), "the hot share no bucket with each other");
    }
    (hot..10_000).filter(|key| outside.peek(key).remaining() == 1).collect()
}

/// Time leaps over the fill time and the margin while threads decide. The sweeper and the ring's
/// hand evict buckets in the very moment when their keys come back, from the map or from outside of
/// it.
///
/// All tokens are taken before time leaps again. So the keys are granted nearly all that they may
/// be, and one grant too many shows.
#[test]
fn a_key_has_one_live_bucket_while_time_leaps() {
    const HOT: u64 = 6;
    let passers_by = passers_by(HOT);
    for (policy, room, sweeps, patience) in [
        (WhenFull::Share, 1_000, true, 1_000_000),
        (WhenFull::Share, 30, true, 1_000_000),
        (WhenFull::Share, 30, false, 1_000_000),
        (WhenFull::Share, 8, false, 1_000_000),
        (WhenFull::Share, 4, true, 1_000_000),
        // Here a key may have no tokens to wait for.
        (WhenFull::Deny, 5, true, 20),
    ] {
        let (clock, mock) = Clock::mock();
        let quota = Quota::per_second(10).burst(5);
        let limiter = RateLimiter::<u64>::builder(quota).hasher(Fixed::default()).clock(clock).max_keys(room);
        let limiter = limiter.when_full(policy).build();
        let (granted, remade) = (counters(HOT as usize), AtomicU64::new(0));
        let mut most = 5;
        oversubscribed(
            |index, goes_on| {
                let mut random = Random(index as u64);
                while goes_on() {
                    match random.below(20) {
                        0 if sweeps && index < 2 => drop(limiter.evict_idle()),
                        1..3 => {
                            let key = random.below(passers_by.len() as u64);
                            let _ = limiter.try_acquire(&passers_by[key as usize]);
                        }
                        _ => {
                            let probe = Probe(random.below(HOT), Cell::new(false));
                            if limiter.try_acquire(&probe).is_ok() {
                                granted[probe.0 as usize].fetch_add(1, Relaxed);
                            }
                            remade.fetch_add(u64::from(probe.1.get()), Relaxed);
                        }
                    }
                    random.stumble();
                }
            },
            || {
                let (mut random, begun) = (Random(THREADS as u64), Instant::now());
                // On a busy machine it takes longer until buckets come and go.
                let came_and_went = || limiter.stats().evicted > 0 && remade.load(Relaxed) > HOT;
                while begun.elapsed() < Duration::from_millis(size(250, 1_000)) || !came_and_went() {
                    let tenths = [1, 2, 26, 30][random.below(4) as usize];
                    mock.advance(Duration::from_millis(100 * tenths));
                    // A bucket earns at most the tokens that it lacked.
                    most += tenths.min(5);
                    let all_taken = || (0..HOT).all(|key| limiter.peek(&key).remaining() == 0);
                    for _ in 0..patience {
                        if all_taken() {
                            break;
                        }
                        thread::yield_now();
                    }
                }
            },
        );
        let stats = limiter.stats();
        let granted: Vec<_> = granted.into_iter().map(AtomicU64::into_inner).collect();
        let remade = remade.into_inner();
        assert!(stats.evicted > 0 && remade > HOT, "buckets came and went");
        println!("{policy:?} in {room}: {granted:?} of {most}, made {remade} times, {stats:?}");
        assert!(granted.iter().all(|granted| *granted <= most), "{granted:?}, not {most}");
        assert!(limiter.len() <= room);
    }
}
