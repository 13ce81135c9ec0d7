//! Decisions for callgrind to count: 20,000 of one kind, in a loop in a function of its own.
//!
//! The counts do not depend on the machine's load. `scripts/instructions` compares them with the
//! committed ones.

use std::hint::black_box;

use foldhash::fast::FixedState;
use tollgate::{Clock, Inflight, Quota, RateLimiter, TokenBucket, Window, WindowCounter, WindowLimiter};

const DECISIONS: u64 = 20_000;
const KEYS: u64 = 500;

type Limiter = RateLimiter<u64, FixedState>;

/// Makes the counted decisions. The loop is 6 instructions of each.
#[inline(never)]
fn decide(keys: &[u64], decision: impl Fn(&u64) -> bool) -> u64 {
    (0..DECISIONS / KEYS).map(|_| keys.iter().map(|key| u64::from(decision(key))).sum::<u64>()).sum()
}

/// Makes them in batches of all the keys.
#[inline(never)]
fn decide_together(limiter: &Limiter, keys: &[u64]) -> u64 {
    let asks: Vec<(&u64, u64)> = keys.iter().map(|key| (key, 1)).collect();
    let batch = || black_box(limiter).try_acquire_batch(&asks).map(|one| u64::from(one.is_ok())).sum::<u64>();
    (0..DECISIONS / KEYS).map(|_| batch()).sum()
}

fn main() {
    Clock::new().warm();
    let kind = std::env::args().nth(1).expect("the kind of decisions");
    let keys: Vec<u64> = (0..KEYS).collect();
    let plenty = Quota::per_second(1_000_000_000).burst(1_000_000_000);
    let (full, empty) = (TokenBucket::new(plenty), TokenBucket::new(Quota::per_hour(1)));
    // The bucket is warm: it leases while decisions are frequent, as they are on a clock that
    // stands.
    let spread = TokenBucket::builder(plenty).clock(Clock::mock().0).spread().build();
    assert!((0..100_000).all(|_| spread.try_acquire().is_ok()));
    let drained = TokenBucket::builder(Quota::per_hour(1)).spread().build();
    assert!(drained.try_acquire().is_ok() && drained.try_acquire().is_err());
    assert!(full.try_acquire().is_ok() && empty.try_acquire().is_ok());
    let keyed = || RateLimiter::<u64>::builder(plenty).hasher(FixedState::default());
    let limiter = keyed().presize(KEYS as usize).unwrap().build();
    let table = keyed().inline(KEYS as usize).unwrap().build();
    for key in &keys {
        assert!([&limiter, &table].map(|limiter| limiter.try_acquire(key).is_ok()) == [true; 2]);
    }
    let (now, pinned) = (full.now(), limiter.pin());
    let hour = Window::per_hour(1 << 20);
    let sliding = hour.granularity(hour.period()).expect("it has two sub-windows");
    let window = match kind.split_once('-') {
        Some((_, "refuse")) => WindowCounter::new(Window::per_minute(100).sliding()),
        Some(("fixed", _)) => WindowCounter::new(hour),
        Some(("utc", _)) => WindowCounter::new(hour.utc()),
        Some(("weighted", _)) => WindowCounter::new(hour.weighted()),
        _ => WindowCounter::new(sliding),
    };
    assert!(window.try_acquire_n(100).is_ok());
    let windows = WindowLimiter::<u64>::builder(if kind == "fixed-keyed" { hour } else { sliding })
        .hasher(FixedState::default());
    let windows = if kind == "sliding-inline" {
        windows.inline(KEYS as usize).unwrap()
    } else {
        windows.presize(KEYS as usize).unwrap()
    };
    let windows = windows.build();
    assert!(keys.iter().all(|key| windows.try_acquire(key).is_ok()));
    // On a clock that stands, the controller does not run.
    let second = std::time::Duration::from_secs(1);
    let adaptive =
        |ceiling| Inflight::adaptive(second, ceiling).clock(Clock::mock().0).build().expect("a limit");
    let inflight = if kind.starts_with("adaptive") { adaptive(1) } else { Inflight::fixed(1) };
    let _held = kind.ends_with("refuse").then(|| inflight.try_enter());
    let done = match kind.as_str() {
        "flight" | "adaptive-flight" => {
            decide(&keys, |_| black_box(&inflight).try_enter().map(tollgate::Flight::answered).is_ok())
        }
        "flight-refuse" | "adaptive-flight-refuse" => {
            decide(&keys, |_| black_box(&inflight).try_enter().is_err())
        }
        "grant" => decide(&keys, |_| black_box(&full).try_acquire().is_ok()),
        "refuse" => decide(&keys, |_| black_box(&empty).try_acquire().is_err()),
        "at" => decide(&keys, |_| black_box(&full).try_acquire_at(now, 1).is_ok()),
        "keyed" => decide(&keys, |key| black_box(&limiter).try_acquire(key).is_ok()),
        "pinned" => decide(&keys, |key| black_box(&pinned).try_acquire(key).is_ok()),
        "inline" => decide(&keys, |key| black_box(&table).try_acquire(key).is_ok()),
        "batch" => decide_together(&table, &keys),
        // The tokens come from leases, with a new lease now and then.
        "leased" => decide(&keys, |_| black_box(&spread).try_acquire().is_ok()),
        "drained" => decide(&keys, |_| black_box(&drained).try_acquire().is_err()),
        // The numbers of the decision are used as well.
        "told" => decide(&keys, |_| {
            let granted = black_box(&full).try_acquire().expect("there is plenty");
            black_box(granted).remaining() > 0
        }),
        "fixed-grant" | "utc-grant" | "sliding-grant" | "weighted-grant" => {
            decide(&keys, |_| black_box(&window).try_acquire().is_ok())
        }
        "fixed-keyed" | "sliding-keyed" | "sliding-inline" => {
            decide(&keys, |key| black_box(&windows).try_acquire(key).is_ok())
        }
        // One token of each key is used.
        "sliding-keyed-refuse" => {
            decide(&keys, |key| black_box(&windows).try_acquire_n(key, 1 << 20).is_err())
        }
        "sliding-refuse" => decide(&keys, |_| black_box(&window).try_acquire().is_err()),
        _ => panic!("no such kind: {kind}"),
    };
    assert_eq!(done, DECISIONS, "each decision is what it says");
}
