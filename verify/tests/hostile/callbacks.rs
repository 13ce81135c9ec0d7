// promise: hostile-keys
//! Keys whose `Drop` calls the limiter that drops them.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::{Clock, Equivalent, MockClock, Quota, RateLimiter, ToKey, WhenFull};
use tollgate_testing::Random;
use tollgate_verify::watchdog::Watchdog;

const BURST: u64 = 5;
/// Longer than the time to fill and the margin.
const LEAP: Duration = Duration::from_secs(60);

/// A limiter, and the call that its keys make when they are dropped.
struct World {
    limiter: RateLimiter<Caller>,
    mock: MockClock,
    last_will: fn(&'static World, u64),
    /// Whether keys are now dropped without a call.
    quiet: AtomicBool,
    drops: AtomicU64,
    deepest: AtomicU64,
}

impl World {
    /// Returns a world that lives as long as its keys, so for ever.
    fn new(max_keys: usize, policy: WhenFull, last_will: fn(&'static World, u64)) -> &'static World {
        let (clock, mock) = Clock::mock();
        let quota = Quota::every(Duration::from_secs(10)).burst(BURST);
        let limiter = RateLimiter::builder(quota).clock(clock).max_keys(max_keys).when_full(policy).build();
        let (quiet, drops, deepest) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Box::leak(Box::new(World { limiter, mock, last_will, quiet, drops, deepest }))
    }

    fn key(&'static self, key: u64) -> Name {
        Name(key, self)
    }

    /// Checks that the limiter still works: every place can be had, and each key gets its burst, to
    /// the token.
    fn works(&'static self, max_keys: u64) {
        self.quiet.store(true, Relaxed);
        self.mock.advance(LEAP);
        self.limiter.evict_idle();
        assert!(self.limiter.is_empty(), "{} keys are stuck", self.limiter.len());
        for key in 0..max_keys {
            for left in (0..BURST).rev() {
                let decision = self.limiter.try_acquire(&self.key(key)).map(|granted| granted.remaining());
                assert_eq!(decision, Ok(left), "key {key}");
            }
            assert!(self.limiter.try_acquire(&self.key(key)).is_err(), "key {key}");
        }
        assert_eq!(self.limiter.len(), max_keys as usize);
    }
}

struct Caller(u64, &'static World);

/// The name by which a caller is asked for. Its drop makes no call.
#[derive(Clone, Copy)]
struct Name(u64, &'static World);

thread_local! {
    static DEPTH: Cell<u64> = const { Cell::new(0) };
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Caller(key, world) = *self;
        if world.quiet.load(Relaxed) {
            return;
        }
        world.drops.fetch_add(1, Relaxed);
        DEPTH.set(DEPTH.get() + 1);
        world.deepest.fetch_max(DEPTH.get(), Relaxed);
        (world.last_will)(world, key);
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Caller) -> bool {
        self.0 == other.0
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<Caller> for Name {
    fn equivalent(&self, key: &Caller) -> bool {
        self.0 == key.0
    }
}

impl ToKey<Caller> for Name {
    fn to_key(&self) -> Caller {
        Caller(self.0, self.1)
    }
}

#[test]
fn a_key_that_is_dropped_may_call_the_limiter() {
    const THREADS: u64 = 8;
    const KEYS: u64 = 1_000;
    const ROOM: u64 = 300;
    let _watchdog = Watchdog::of("keys that call back", 600);
    let last_will = |world: &'static World, key: u64| {
        match key % 5 {
            // The key itself, which is no longer in the map, and another that may be.
            0 => drop((world.limiter.try_acquire(&world.key(key)), world.limiter.peek(&world.key(key + 1)))),
            1 => drop(world.limiter.pin().try_acquire(&world.key(key + 3))),
            2 => drop(world.limiter.remove(&world.key(key + 2))),
            3 => drop(world.limiter.evict_idle()),
            _ => world.limiter.clear(),
        }
    };
    for policy in [WhenFull::Share, WhenFull::Deny] {
        let world = World::new(ROOM as usize, policy, last_will);
        thread::scope(|scope| {
            for index in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random(index);
                    for call in 0..10_000 {
                        let key = random.below(KEYS);
                        match random.below(100) {
                            0 => drop(world.limiter.evict_idle()),
                            1 if call % 10 == 0 => world.limiter.clear(),
                            2..10 => drop(world.limiter.remove(&world.key(key))),
                            10..12 => world.mock.advance(LEAP),
                            _ => drop(world.limiter.try_acquire(&world.key(key))),
                        }
                    }
                });
            }
        });
        let (drops, deepest) = (world.drops.load(Relaxed), world.deepest.load(Relaxed));
        println!(
            "{policy:?}: {drops} keys dropped, {deepest} in one another at most, {:?}",
            world.limiter.stats()
        );
        assert!(drops > 10_000 && deepest > 1, "{drops} drops, {deepest} deep");
        world.works(ROOM);
    }
}

/// Each key removes another when it is dropped.
///
/// The map drops removed keys in batches. A batch that gets full while another is dropped is
/// dropped inside it. So the chain is a stack, of a frame for each batch.
#[test]
fn keys_that_remove_each_other_do_not_overflow_the_stack() {
    const KEYS: u64 = 200_000;
    const CHAINS: u64 = 128;
    let _watchdog = Watchdog::of("keys that remove each other", 600);
    let world = World::new(KEYS as usize, WhenFull::Deny, |world, key| {
        world.limiter.remove(&world.key(key + CHAINS));
    });
    for key in 0..KEYS {
        assert!(world.limiter.try_acquire(&world.key(key)).is_ok());
    }
    for key in 0..CHAINS {
        world.limiter.remove(&world.key(key));
    }
    let (drops, deepest) = (world.drops.load(Relaxed), world.deepest.load(Relaxed));
    println!("{drops} keys dropped, {deepest} in one another at most, {} left", world.limiter.len());
    assert!(world.limiter.is_empty() && drops > KEYS / 2);
}
