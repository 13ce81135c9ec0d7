// promise: one-bucket
//! Contended keys that are spread: in a map and in a table, by every verb, and back to plain.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Clock, Quota, RateLimiter, Reservation, TokenBucket, all_of};

use crate::support::{Random, SECOND};

const QUOTA: Quota = Quota::per_second(1_000).burst(10_000);
/// Whether the store is a table.
const STORES: [bool; 2] = [false, true];

type Keys = RateLimiter<u64>;

/// A limiter on a clock that can take a token as it is read, so that the reading call loses a race.
struct Contended {
    keys: Arc<OnceLock<Keys>>,
    nanos: Arc<AtomicU64>,
    rival: Arc<AtomicU64>,
    plan: Arc<Mutex<Option<Planned>>>,
}

/// A step of another caller, at a later reading of the clock.
#[derive(Clone, Copy)]
struct Planned {
    /// Readings before that one.
    readings: u64,
    step: fn(&Keys, &AtomicU64),
}

const OTHERS: Range<u64> = 2..300;

const NOBODY: u64 = u64::MAX;

impl Contended {
    fn new(inline: bool, quota: Quota) -> Contended {
        Contended::of(inline, quota, 1_000)
    }

    fn of(inline: bool, quota: Quota, max_keys: usize) -> Contended {
        let keys = Arc::new(OnceLock::<Keys>::new());
        let (nanos, rival) = (Arc::new(AtomicU64::new(SECOND)), Arc::new(AtomicU64::new(NOBODY)));
        let plan = Arc::new(Mutex::new(None::<Planned>));
        let clock = Clock::from_fn({
            let (keys, nanos, rival) = (Arc::clone(&keys), Arc::clone(&nanos), Arc::clone(&rival));
            let plan = Arc::clone(&plan);
            move || {
                let due = {
                    let mut plan = plan.lock().unwrap();
                    let due = plan.take_if(|planned| planned.readings == 0);
                    plan.iter_mut().for_each(|planned| planned.readings -= 1);
                    due
                };
                if let Some(Planned { step, .. }) = due {
                    step(keys.get().expect("it is there"), &rival);
                }
                let key = rival.swap(NOBODY, Relaxed);
                if key != NOBODY {
                    let _ = keys.get().expect("it is there").try_acquire(&key);
                }
                Duration::from_nanos(nanos.load(Relaxed))
            }
        });
        let builder = Keys::builder(quota).clock(clock).max_keys(max_keys).spread_hot();
        let built = if inline { builder.inline(max_keys) } else { builder };
        assert!(keys.set(built.build()).is_ok());
        Contended { keys, nanos, rival, plan }
    }

    fn keys(&self) -> &Keys {
        self.keys.get().expect("it is there")
    }

    /// Plans a step of another caller after some readings, in place of an earlier plan.
    fn plan(&self, readings: u64, step: fn(&Keys, &AtomicU64)) {
        *self.plan.lock().unwrap() = Some(Planned { readings, step });
    }

    fn pass(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// Takes tokens of a key while a rival does, and returns how many both took.
    fn contend(&self, key: u64, times: u64) -> u64 {
        let before = self.keys().peek(&key).remaining();
        for _ in 0..times {
            self.rival.store(key, Relaxed);
            assert!(self.keys().try_acquire(&key).is_ok());
        }
        self.rival.store(NOBODY, Relaxed);
        before - self.keys().peek(&key).remaining()
    }

    /// Takes tokens of a spread key until it has leases.
    fn heat(&self, key: u64) {
        (0..200).for_each(|_| assert!(self.keys().try_acquire(&key).is_ok()));
    }

    fn spread(&self) -> usize {
        self.keys().stats().spread
    }
}

/// Returns a limiter whose key 1 is spread and has leases, and the tokens left of 10,000.
fn hot(inline: bool) -> (Contended, u64) {
    let world = Contended::new(inline, QUOTA);
    let contended = world.contend(1, 40);
    assert_eq!(world.spread(), 1);
    world.heat(1);
    let left = world.keys().peek(&1).remaining();
    assert_eq!(left, 10_000 - contended - 200);
    (world, left)
}

#[test]
fn a_contended_key_is_spread_and_others_are_not() {
    for inline in STORES {
        let world = Contended::new(inline, QUOTA);
        for key in 0..100 {
            (0..100).for_each(|_| assert!(world.keys().try_acquire(&key).is_ok()));
        }
        assert_eq!(world.spread(), 0);
        // Races that are too rare to spread a key.
        for _ in 0..100 {
            world.contend(1, 1);
            world.pass(1_000_000);
        }
        assert_eq!(world.spread(), 0);
        world.contend(1, 40);
        assert_eq!(world.spread(), 1);
        assert_eq!(world.keys().peek(&2).remaining(), 9_900 + 100);
    }
}

/// The cells of a newly spread key are unused, so the time since its promotion counts as well.
#[test]
fn a_key_that_was_just_spread_stays_so() {
    for inline in STORES {
        let world = Contended::new(inline, QUOTA);
        let end = world.contend(1, 40);
        assert!(end > 40);
        for _ in 0..2 {
            assert_eq!((world.keys().evict_idle(), world.spread()), (0, 1));
            world.pass(SECOND / 20);
        }
        world.pass(SECOND / 20);
        assert_eq!((world.keys().evict_idle(), world.spread()), (0, 0));
    }
}

#[test]
fn no_more_than_sixteen_are_spread() {
    for inline in STORES {
        let world = Contended::new(inline, QUOTA);
        for key in 0..100 {
            world.contend(key, 40);
        }
        let spread = world.spread();
        assert!((8..=16).contains(&spread), "{spread}");
        for key in 0..100 {
            let left = world.keys().peek(&key).remaining();
            assert_eq!((0..20_000).filter(|_| world.keys().try_acquire(&key).is_ok()).count() as u64, left);
        }
        // The first keys leave their seats when they are idle.
        world.pass(SECOND);
        for key in 100..200 {
            world.contend(key, 40);
        }
        assert!((8..=16).contains(&world.spread()));
    }
}

/// A key is removed while a taker has one of its cells, and other keys want these cells.
#[test]
fn cells_that_a_taker_still_has_serve_another_key_later() {
    for inline in STORES {
        let (world, _) = hot(inline);
        world.plan(0, |keys, rival| {
            assert!(keys.remove(&1));
            for key in OTHERS.flat_map(|key| [key; 40]) {
                rival.store(key, Relaxed);
                assert!(keys.try_acquire(&key).is_ok());
            }
            rival.store(NOBODY, Relaxed);
        });
        (0..600).for_each(|_| assert!(world.keys().try_acquire(&1).is_ok()));
        assert_eq!(world.spread(), 15);
        // The races of the other keys are long ago.
        world.pass(SECOND / 50);
        for key in OTHERS.end..2 * OTHERS.end {
            world.contend(key, 40);
        }
        assert_eq!(world.spread(), 16);
    }
}

/// The key is removed, or replaced, after the last of the lost races that would spread it.
#[test]
fn a_key_that_was_removed_is_not_spread() {
    let steps: [fn(&Keys, &AtomicU64); 2] = [
        |keys, _| assert!(keys.remove(&1)),
        |keys, _| assert!(keys.remove(&1) && keys.try_acquire(&1).is_ok()),
    ];
    for step in steps {
        let world = Contended::new(false, QUOTA);
        assert!(world.keys().try_acquire(&1).is_ok());
        world.contend(1, 31);
        // The reading of the attempt, and that of the rival, come first.
        world.plan(2, step);
        world.rival.store(1, Relaxed);
        assert!(world.keys().try_acquire(&1).is_ok());
        assert_eq!((world.spread(), world.plan.lock().unwrap().is_some()), (0, false));
        world.contend(1, 40);
        assert_eq!(world.spread(), 1);
    }
}

#[test]
fn threads_are_granted_the_burst_of_each_key_and_no_more() {
    for (inline, threads, burst) in STORES.map(|inline| [(inline, 2, 3_000), (inline, 8, 30_000)]).concat() {
        for round in 0..10 {
            let world = Contended::new(inline, Quota::per_hour(1).burst(burst));
            let mut expected = [burst; 3];
            for key in [0, 1] {
                expected[key as usize] -= world.contend(key, 40);
            }
            assert!(world.spread() > 0);
            let (granted, start) = ([const { AtomicU64::new(0) }; 3], Barrier::new(threads));
            thread::scope(|scope| {
                for thread in 0..threads as u64 {
                    let (world, granted, start) = (&world, &granted, &start);
                    scope.spawn(move || {
                        let mut random = Random(round << 8 | thread);
                        start.wait();
                        let mut refused = 0;
                        while refused < 50 {
                            let (key, n) = (random.below(3), 1 + random.below(20) / 19 * random.below(9));
                            let keys = world.keys();
                            let taken = match random.below(200) {
                                0 => keys.acquire_up_to(&key, n).tokens(),
                                1 => {
                                    keys.try_acquire_at(keys.now(), &key, n).map_or(0, |taken| taken.tokens())
                                }
                                2 => keys.hold(&key, n).map_or(0, |hold| n - hold.settle(n)),
                                3 => {
                                    // Folds idle keys back.
                                    world.pass(SECOND / 5);
                                    keys.evict_idle();
                                    0
                                }
                                4 => keys.peek(&(key + 3)).remaining() - burst,
                                _ => keys.try_acquire_n(&key, n).map_or(0, |taken| taken.tokens()),
                            };
                            granted[key as usize].fetch_add(taken, Relaxed);
                            refused = if taken == 0 { refused + 1 } else { 0 };
                        }
                    });
                }
            });
            for (key, granted) in granted.into_iter().enumerate() {
                let left = world.keys().acquire_up_to(&(key as u64), burst).tokens();
                let all = granted.into_inner() + left;
                // Few tokens are earned in the time that passes.
                assert!(
                    (expected[key]..expected[key] + 20).contains(&all),
                    "key {key}, round {round}: {all}"
                );
            }
        }
    }
}

#[test]
fn a_key_that_is_idle_is_spread_no_more_and_then_evicted() {
    for inline in STORES {
        let (world, left) = hot(inline);
        assert_eq!(world.keys().evict_idle(), 0);
        assert_eq!(world.spread(), 1);
        world.pass(SECOND / 5);
        // Another key is asked for, at times.
        for _ in 0..20 {
            let _ = world.keys().try_acquire(&2);
            world.pass(1 << 20);
        }
        assert_eq!(world.spread(), 0);
        assert!(world.keys().peek(&1).remaining() >= left);
        world.pass(60 * SECOND);
        assert_eq!(world.keys().evict_idle(), 2);
        assert!(world.keys().is_empty());
        assert!(world.keys().try_acquire_n(&1, 10_000).is_ok());
    }
}

/// A key that was spread, and never had a lease, is evicted by the first sweep.
#[test]
fn a_spread_key_without_a_lease_is_evicted_at_once() {
    for inline in STORES {
        let world = Contended::new(inline, QUOTA);
        world.contend(1, 40);
        assert_eq!(world.spread(), 1);
        world.pass(60 * SECOND);
        assert_eq!((world.keys().evict_idle(), world.spread()), (1, 0));
        assert!(world.keys().is_empty());
    }
}

#[test]
fn a_key_that_is_used_at_leisure_is_spread_no_more() {
    for inline in STORES {
        let (world, left) = hot(inline);
        for _ in 0..30 {
            world.pass(10_000_000);
            assert!(world.keys().try_acquire(&1).is_ok());
        }
        (0..20).for_each(|_| {
            let _ = world.keys().try_acquire(&2);
            world.pass(1 << 20);
        });
        assert_eq!(world.spread(), 0);
        assert!(world.keys().peek(&1).remaining() >= left);
    }
}

/// A spread key that is no longer asked for makes room as any other.
#[test]
fn a_key_that_was_spread_makes_room() {
    for inline in STORES {
        let world = Contended::of(inline, QUOTA, 1);
        world.contend(1, 40);
        world.heat(1);
        assert_eq!(world.spread(), 1);
        world.pass(60 * SECOND);
        for key in 2..100 {
            let _ = world.keys().try_acquire(&key);
            world.pass(3 * SECOND);
        }
        assert_eq!(world.spread(), 0);
        assert!(world.keys().stats().evicted > 0);
    }
}

#[test]
fn a_key_that_is_removed_leaves_nothing() {
    for inline in STORES {
        for clear in [false, true] {
            let (world, _) = hot(inline);
            match clear {
                true => world.keys().clear(),
                false => assert!(world.keys().remove(&1)),
            }
            assert_eq!((world.spread(), world.keys().len()), (0, 0));
            assert_eq!((0..20_000).filter(|_| world.keys().try_acquire(&1).is_ok()).count(), 10_000);
        }
    }
}

#[test]
fn every_verb_counts_what_is_at_hand() {
    for inline in STORES {
        let (world, left) = hot(inline);
        assert_eq!(world.keys().acquire_up_to(&1, 20_000).tokens(), left);
        let (world, left) = hot(inline);
        let denied = world.keys().try_acquire_n(&1, left + 1).unwrap_err();
        assert_eq!(denied.remaining(), left);
        assert!(world.keys().try_acquire_n(&1, left).is_ok());
        let (world, left) = hot(inline);
        assert!(world.keys().try_acquire_at(world.keys().now(), &1, left).is_ok());
        assert!(world.keys().pin().try_acquire(&1).is_err());
        let (world, left) = hot(inline);
        world.keys().refund(&1, 50);
        assert_eq!(world.keys().peek(&1).remaining(), left + 50);
        world.keys().refund(&1, 1_000);
        assert_eq!(world.keys().peek(&1).remaining(), 10_000);
        let (world, left) = hot(inline);
        assert_eq!(world.keys().hold(&1, left).unwrap().settle(left + 100), 0);
        assert_eq!(world.keys().reserve(&1, 1).map(Reservation::commit).unwrap().tokens(), 1);
        let wait = world.keys().try_acquire(&1).unwrap_err().retry_after();
        assert_eq!(wait, Some(Duration::from_millis(102)));
        let (world, left) = hot(inline);
        drop(world.keys().reserve(&1, left + 10).unwrap());
        assert_eq!(world.keys().peek(&1).remaining(), left);
        let (world, left) = hot(inline);
        let other = TokenBucket::with_clock(Quota::per_hour(1), Clock::mock().0);
        assert!(all_of((world.keys().key(&1).n(left - 300), other.n(1))).try_acquire().is_ok());
        assert_eq!(all_of((world.keys().key(&1).n(200), other.n(1))).try_acquire().unwrap_err().which(), 1);
        assert_eq!(world.keys().peek(&1).remaining(), 300);
        assert_eq!(world.keys().try_acquire_batch(&[(&1, 300), (&1, 1)]).filter(Result::is_ok).count(), 1);
    }
}

#[test]
fn a_plan_ends_it_for_its_key() {
    for inline in STORES {
        let (world, left) = hot(inline);
        let plan = world.keys().plan(Quota::per_second(10).burst(10_000)).unwrap();
        assert_eq!(world.keys().key(&1).under(&plan).peek().remaining(), left);
        assert_eq!(world.spread(), 0);
        let (world, left) = hot(inline);
        let plan = world.keys().plan(Quota::per_second(10).burst(10_000)).unwrap();
        assert!(world.keys().try_acquire_as(&1, left, &plan).is_ok());
        assert_eq!(world.spread(), 0);
        let (world, left) = hot(inline);
        let plan = world.keys().plan(Quota::per_second(10).burst(10_000)).unwrap();
        world.keys().key(&1).n(100).under(&plan).refund();
        assert_eq!(world.keys().peek(&1).remaining(), left + 100);
    }
}

/// Another thread sets the same quota at each reading of a few refills. The bucket is as full as
/// its leases allow, so a lost token would be missed.
#[test]
fn a_change_to_the_same_quota_loses_no_token() {
    for inline in STORES {
        for reading in 0..10 {
            let world = Contended::new(inline, Quota::per_second(1_000_000_000).burst(4_000));
            world.contend(1, 40);
            world.heat(1);
            // The bucket is still in demand, and full again.
            world.pass(4_000);
            let left = world.keys().peek(&1).remaining();
            world.plan(reading, |keys, _| keys.set_quota(keys.quota()).unwrap());
            world.heat(1);
            world.heat(1);
            let now = (world.spread(), world.keys().peek(&1).remaining());
            assert_eq!(now, (1, left - 400), "changed at the reading {reading}");
        }
    }
}

#[test]
fn a_smaller_burst_holds_at_once() {
    for inline in STORES {
        let (world, _) = hot(inline);
        world.keys().set_quota(QUOTA.burst(5)).unwrap();
        assert_eq!((0..100).filter(|_| world.keys().try_acquire(&1).is_ok()).count(), 5);
        world.keys().set_quota(QUOTA).unwrap();
        world.pass(60 * SECOND);
        assert_eq!((0..20_000).filter(|_| world.keys().try_acquire(&1).is_ok()).count(), 10_000);
    }
}

/// A key is granted at most the burst at once, whatever its leases hold when time passes.
#[test]
fn a_lease_is_not_granted_twice() {
    for inline in STORES {
        let (world, _) = hot(inline);
        for round in 0..50 {
            // In a third of the rounds, the key is folded back.
            world.pass(60 * SECOND);
            if round % 3 == 0 {
                world.keys().evict_idle();
            }
            let granted = (0..20_000).filter(|_| world.keys().try_acquire(&1).is_ok()).count();
            assert!((7_500..=10_000).contains(&granted), "{granted}");
            world.pass(SECOND);
            world.contend(1, 40);
        }
    }
}

/// A hook sees every decision, and plans have no leases.
#[test]
fn a_limiter_that_is_watched_spreads_nothing() {
    let clock = || Clock::mock().0;
    let plain = [
        Keys::builder(QUOTA).clock(clock()).spread_hot().shadow(true).build(),
        Keys::builder(QUOTA).clock(clock()).spread_hot().on_decision(|_| {}).build(),
        Keys::builder(QUOTA).clock(clock()).spread_hot().plan_for(|_| None).build(),
    ];
    for keys in plain {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..4_000).for_each(|_| assert!(keys.try_acquire(&1).is_ok())));
            }
        });
        assert_eq!((keys.stats().spread, keys.peek(&1).remaining()), (0, 2_000));
    }
}

#[test]
fn the_law_holds_on_the_real_clock() {
    const RATE: u64 = 2_000_000;
    const BURST: u64 = 5_000;
    for inline in STORES {
        let builder = Keys::builder(Quota::per_second(RATE).burst(BURST)).spread_hot();
        let keys = if inline { builder.inline(100) } else { builder }.build();
        let granted = [const { AtomicU64::new(0) }; 2];
        let begin = Instant::now();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (keys, granted) = (&keys, &granted);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    while begin.elapsed() < Duration::from_millis(150) {
                        for _ in 0..100 {
                            let key = random.below(10) / 9;
                            let taken = u64::from(keys.try_acquire(&key).is_ok());
                            granted[key as usize].fetch_add(taken, Relaxed);
                        }
                    }
                });
            }
        });
        let most = BURST as f64 + begin.elapsed().as_secs_f64() * RATE as f64 + 1.0;
        for granted in granted {
            let granted = granted.into_inner();
            assert!(granted as f64 <= most, "{granted} of {most}");
        }
    }
}
