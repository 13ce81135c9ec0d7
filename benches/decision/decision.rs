//! The time of a decision beside governor and the mutex design: `cargo bench`, in seconds.
//!
//! Each takes a turn in each round, so that they share the noise of the machine. A ratio is the
//! median of those of the rounds. The package in `benches/` has all cases, and other limiters.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use tollgate::{Clock, Quota, RateLimiter, TokenBucket};

const ROUNDS: usize = 15;
/// Decisions of a round.
const DECISIONS: u64 = 200_000;
/// A token earns in 100 ns, so that each decision refills. A burst is never used up.
const TOKEN: Duration = Duration::from_nanos(100);
const BURST: u32 = 1 << 30;

/// The mutex design: a level and its time.
struct Level {
    tokens: f64,
    stamp: Instant,
}

impl Level {
    fn full() -> Level {
        Level { tokens: BURST.into(), stamp: Instant::now() }
    }

    #[inline]
    fn take(&mut self, now: Instant) -> bool {
        let earned = (now - self.stamp).as_secs_f64() / TOKEN.as_secs_f64();
        *self = Level { tokens: (self.tokens + earned).min(BURST.into()), stamp: now };
        let is_granted = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(is_granted));
        is_granted
    }
}

type Governor = governor::RateLimiter<u64, DashMapStateStore<u64, RandomState>, DefaultClock>;

/// A limiter's name, and the time that a round of its decisions takes.
type Contender = (&'static str, Box<dyn FnMut() -> Duration>);

/// Returns a limiter whose loop over the keys of a round is timed as a whole.
fn contender(name: &'static str, keys: u64, mut decide: impl FnMut(u64) -> bool + 'static) -> Contender {
    // Once each, so that no round inserts one.
    (0..keys).for_each(|key| assert!(decide(key)));
    let round = move || {
        let start = Instant::now();
        for n in 0..DECISIONS {
            // A prime, so that no key follows its neighbour.
            assert!(black_box(decide(black_box(n.wrapping_mul(7_368_787) % keys))));
        }
        start.elapsed()
    };
    (name, Box::new(round))
}

/// Prints the median time of each contender, and the median ratios of ours to the others, which are
/// the last two.
fn print(case: &str, contenders: &mut [Contender]) {
    let mut rounds = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        contenders.iter_mut().zip(&mut rounds).for_each(|(contender, times)| times.push(contender.1()));
    }
    let (ours, theirs) = rounds.split_at(rounds.len() - 2);
    for (contender, times) in contenders.iter().zip(ours) {
        let nanos = times.iter().map(|time| time.as_nanos() as f64 / DECISIONS as f64);
        let ratio = |of: &[Duration]| median(times.iter().zip(of).map(|(a, b)| a.div_duration_f64(*b)));
        let (nanos, governor, mutex) = (median(nanos), ratio(&theirs[0]), ratio(&theirs[1]));
        println!("{case:13} {:8} {nanos:6.1} ns {governor:12.2} {mutex:10.2}", contender.0);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    Clock::new().warm();
    println!("{:38}of governor   of mutex", "A decision of one thread");

    let quota = Quota::every(TOKEN).burst(BURST.into());
    let burst = NonZeroU32::new(BURST).expect("it is not 0");
    let governors = governor::Quota::with_period(TOKEN).expect("it is not 0").allow_burst(burst);

    let bucket = TokenBucket::new(quota);
    let governor = governor::RateLimiter::direct(governors);
    let mutex = Mutex::new(Level::full());
    print(
        "one bucket",
        &mut [
            contender("", 1, move |_| bucket.try_acquire().is_ok()),
            contender("governor", 1, move |_| governor.check().is_ok()),
            contender("mutex", 1, move |_| mutex.lock().expect("no thread panics").take(Instant::now())),
        ],
    );
    for (case, keys) in [("1,000 keys", 1_000), ("100,000 keys", 100_000)] {
        let builder = || RateLimiter::<u64>::builder(quota).hasher(RandomState::default());
        let map = builder().build();
        let table = builder().max_keys(keys as usize).inline().expect("a table of so many").build();
        let states = DashMap::with_hasher(RandomState::default());
        let governor: Governor = governor::RateLimiter::new(governors, states, DefaultClock::default());
        let levels = Mutex::new(HashMap::with_hasher(RandomState::default()));
        print(
            case,
            &mut [
                contender("map", keys, move |key| map.try_acquire(&key).is_ok()),
                contender("table", keys, move |key| table.try_acquire(&key).is_ok()),
                contender("governor", keys, move |key| governor.check_key(&key).is_ok()),
                contender("mutex", keys, move |key| {
                    let now = Instant::now();
                    levels.lock().expect("no thread panics").entry(key).or_insert_with(Level::full).take(now)
                }),
            ],
        );
    }
}
