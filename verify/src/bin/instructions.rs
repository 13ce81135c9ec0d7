//! Decisions for callgrind to count: 20,000 of one kind, in a loop in a function of its own.
//!
//! The counts do not depend on the machine's load. `scripts/instructions` compares them with the
//! committed ones.
//!
//! A kind is a form of a call, between its rule and its store: `sliding-keep-inline`. The forms are
//! `key` (a request as a value), `keep` (a part of the burst stays), `up-to`, `plan` (a cap of a
//! window) and `hook` (an empty one). The stores are a map, the table (`inline`) and one bucket
//! (`one`).

use std::hint::black_box;
use std::time::Duration;

use foldhash::fast::FixedState;
use tollgate::{Clock, Denied, Granted, Places, Quota, RateLimiter, TokenBucket, Window, WindowCounter};
use tollgate_adaptive::{Enter, Flight, Inflight};

const DECISIONS: u64 = 20_000;
const KEYS: u64 = 500;

type Limiter = RateLimiter<u64, Quota, FixedState>;
type Windows = RateLimiter<u64, Window, FixedState>;

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

/// A quota whose buckets are full at each decision.
fn plenty() -> Quota {
    Quota::per_second(1_000_000_000).burst(1_000_000_000)
}

/// The cheapest hook.
fn unseen(_: &Result<Granted, Denied>) {}

fn one_bucket(kind: &str, keys: &[u64]) -> Option<u64> {
    let (full, empty) = (TokenBucket::new(plenty()), TokenBucket::new(Quota::per_hour(1)));
    assert!(full.try_acquire().is_ok() && empty.try_acquire().is_ok());
    let now = full.now();
    Some(match kind {
        "grant" => decide(keys, |_| black_box(&full).try_acquire().is_ok()),
        "refuse" => decide(keys, |_| black_box(&empty).try_acquire().is_err()),
        "at" => decide(keys, |_| black_box(&full).ask().at(now).try_acquire().is_ok()),
        // The numbers of the decision are used as well.
        "told" => decide(keys, |_| {
            let granted = black_box(&full).try_acquire().expect("there is plenty");
            black_box(granted).remaining() > 0
        }),
        "keep-one" => decide(keys, |_| black_box(&full).ask().keep(50).try_acquire().is_ok()),
        "up-to-one" => decide(keys, |_| black_box(&full).ask().acquire_up_to().tokens() == 1),
        "hook-one" => {
            let seen = TokenBucket::builder(plenty()).on_decision(unseen).build();
            decide(keys, |_| black_box(&seen).try_acquire().is_ok())
        }
        // The bucket is warm: it leases while decisions are frequent, as they are on a clock that
        // stands. The tokens come from leases, with a new lease now and then.
        "leased" => {
            let spread = TokenBucket::builder(plenty()).clock(Clock::mock().0).spread().build();
            assert!((0..100_000).all(|_| spread.try_acquire().is_ok()));
            decide(keys, |_| black_box(&spread).try_acquire().is_ok())
        }
        "drained" => {
            let drained = TokenBucket::builder(Quota::per_hour(1)).spread().build();
            assert!(drained.try_acquire().is_ok() && drained.try_acquire().is_err());
            decide(keys, |_| black_box(&drained).try_acquire().is_err())
        }
        _ => return None,
    })
}

/// The limiter of a kind: its store, its hook and its plans.
fn limiter(kind: &str) -> Limiter {
    let quota = match kind {
        "refund" => Quota::per_hour(1).burst(1 << 20),
        "shadow-refuse" => Quota::per_hour(1),
        _ => plenty(),
    };
    let builder = RateLimiter::<u64>::builder(quota).hasher(FixedState::default());
    let builder = match kind.ends_with("inline") || kind == "batch" {
        true => builder.max_keys(KEYS as usize).inline(),
        false => builder.presize(KEYS as usize),
    };
    let builder = builder.expect("a size");
    match kind {
        "hook" | "hook-inline" => builder.on_decision(unseen).build(),
        "shadow-refuse" => builder.shadow(true).build(),
        "plan-for" => builder.plans([plenty()]).expect("a plan").plan_for(|_| Some(0)).build(),
        _ => builder.build(),
    }
}

fn keyed(kind: &str, keys: &[u64]) -> Option<u64> {
    let limiter = limiter(kind);
    // A limiter that has plans evicts later, so others have none.
    let half = Quota::per_second(500_000_000).burst(1_000_000_000);
    let plan = || limiter.plan(half).expect("a plan");
    for key in keys {
        assert!(limiter.try_acquire_n(key, if kind == "refund" { 1_000 } else { 1 }).is_ok());
    }
    let (now, pinned) = (limiter.now(), limiter.pin());
    Some(match kind {
        "keyed" => decide(keys, |key| black_box(&limiter).try_acquire(key).is_ok()),
        "inline" => decide(keys, |key| black_box(&limiter).try_acquire(key).is_ok()),
        "batch" => decide_together(&limiter, keys),
        "pinned" => decide(keys, |key| black_box(&pinned).try_acquire(key).is_ok()),
        "keyed-at" => decide(keys, |key| black_box(&limiter).key(key).at(now).try_acquire().is_ok()),
        "key" | "key-inline" => decide(keys, |key| black_box(&limiter).key(key).try_acquire().is_ok()),
        "keep" | "keep-inline" => {
            decide(keys, |key| black_box(&limiter).key(key).keep(50).try_acquire().is_ok())
        }
        "up-to" | "up-to-inline" => {
            decide(keys, |key| black_box(&limiter).key(key).acquire_up_to().tokens() == 1)
        }
        "plan" | "plan-inline" => {
            let plan = plan();
            decide(keys, |key| black_box(&limiter).key(key).under(&plan).try_acquire().is_ok())
        }
        "hook" | "hook-inline" => decide(keys, |key| black_box(&limiter).try_acquire(key).is_ok()),
        "plan-for" | "shadow-refuse" => decide(keys, |key| black_box(&limiter).try_acquire(key).is_ok()),
        "pinned-plan" => {
            let plan = plan();
            decide(keys, |key| black_box(&pinned).key(key).under(&plan).try_acquire().is_ok())
        }
        "refund" => decide(keys, |key| {
            black_box(&limiter).refund(key, 1);
            true
        }),
        "hold" => {
            decide(keys, |key| black_box(&limiter).key(key).hold().is_ok_and(|held| held.settle(1) == 0))
        }
        _ => return None,
    })
}

fn hour() -> Window {
    Window::per_hour(1 << 20)
}

fn sliding() -> Window {
    hour().granularity(hour().period()).expect("it has two sub-windows")
}

fn one_window(kind: &str, keys: &[u64]) -> Option<u64> {
    let window = match kind {
        "sliding-refuse" => Window::per_minute(100).sliding(),
        _ if kind.starts_with("fixed") => hour(),
        _ if kind.starts_with("utc") => hour().utc(),
        _ if kind.starts_with("weighted") => hour().weighted(),
        _ => sliding(),
    };
    let window = WindowCounter::new(window);
    assert!(window.try_acquire_n(100).is_ok());
    Some(match kind {
        "fixed-grant" | "utc-grant" | "sliding-grant" | "weighted-grant" => {
            decide(keys, |_| black_box(&window).try_acquire().is_ok())
        }
        "sliding-refuse" => decide(keys, |_| black_box(&window).try_acquire().is_err()),
        "sliding-keep-one" => decide(keys, |_| black_box(&window).ask().keep(50).try_acquire().is_ok()),
        "sliding-up-to-one" => decide(keys, |_| black_box(&window).ask().acquire_up_to().tokens() == 1),
        _ => return None,
    })
}

fn windows(kind: &str, keys: &[u64]) -> Option<u64> {
    let window = if kind.starts_with("fixed") { hour() } else { sliding() };
    let builder = RateLimiter::<u64, _>::builder(window).hasher(FixedState::default());
    let builder = match kind.ends_with("inline") {
        true => builder.max_keys(KEYS as usize).inline(),
        false => builder.presize(KEYS as usize),
    };
    let builder = builder.expect("a size");
    let windows: Windows =
        if kind.contains("hook") { builder.on_decision(unseen).build() } else { builder.build() };
    assert!(keys.iter().all(|key| windows.try_acquire(key).is_ok()));
    let cap = windows.plan(windows.rule().with_limit(1 << 19).expect("a cap")).expect("a cap");
    Some(match kind {
        "fixed-keyed" | "sliding-keyed" | "sliding-inline" | "sliding-hook" | "sliding-hook-inline" => {
            decide(keys, |key| black_box(&windows).try_acquire(key).is_ok())
        }
        // One token of each key is used.
        "sliding-keyed-refuse" => {
            decide(keys, |key| black_box(&windows).try_acquire_n(key, 1 << 20).is_err())
        }
        "fixed-key" | "sliding-key" | "sliding-key-inline" => {
            decide(keys, |key| black_box(&windows).key(key).try_acquire().is_ok())
        }
        "sliding-keep" | "sliding-keep-inline" => {
            decide(keys, |key| black_box(&windows).key(key).keep(50).try_acquire().is_ok())
        }
        "sliding-up-to" | "sliding-up-to-inline" => {
            decide(keys, |key| black_box(&windows).key(key).acquire_up_to().tokens() == 1)
        }
        "sliding-plan" | "sliding-plan-inline" => {
            decide(keys, |key| black_box(&windows).key(key).under(&cap).try_acquire().is_ok())
        }
        _ => return None,
    })
}

fn in_flight(kind: &str, keys: &[u64]) -> Option<u64> {
    // On a clock that stands, the controller does not run.
    let second = Duration::from_secs(1);
    let adaptive =
        |ceiling| Inflight::adaptive(second, ceiling).clock(Clock::mock().0).build().expect("a limit");
    let inflight = if kind.starts_with("adaptive") { adaptive(1) } else { Inflight::fixed(1) };
    let _held = kind.ends_with("refuse").then(|| inflight.try_enter());
    Some(match kind {
        "flight" | "adaptive-flight" => {
            decide(keys, |_| black_box(&inflight).try_enter().map(Flight::answered).is_ok())
        }
        "flight-refuse" | "adaptive-flight-refuse" => {
            decide(keys, |_| black_box(&inflight).try_enter().is_err())
        }
        // A place of a key, taken and given back.
        "places" => {
            let places = RateLimiter::<u64, _>::builder(Places::new(2)).hasher(FixedState::default()).build();
            let held: Vec<_> = keys.iter().map(|key| places.try_enter(key)).collect();
            assert!(held.iter().all(Result::is_ok));
            decide(keys, |key| black_box(&places).try_enter(key).is_ok())
        }
        _ => return None,
    })
}

fn main() {
    Clock::new().warm();
    let kind = std::env::args().nth(1).expect("the kind of decisions");
    let keys: Vec<u64> = (0..KEYS).collect();
    let groups = [one_bucket, keyed, one_window, windows, in_flight];
    let done = groups.iter().find_map(|group| group(&kind, &keys));
    let done = done.unwrap_or_else(|| panic!("no such kind: {kind}"));
    assert_eq!(done, DECISIONS, "each decision is what it says");
}
