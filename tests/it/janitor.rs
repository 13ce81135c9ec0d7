//! The thread that sweeps: it runs on real time, and its limiter on the mock clock. No test sleeps
//! for a verdict; each waits for its condition.

use std::hash::{BuildHasher, DefaultHasher};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Clock, Quota, RateLimiter};

use super::InStore;

const OFTEN: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(1 << 40);
/// Far more than any step here takes: only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::yield_now();
    }
}

#[test]
fn a_janitor_evicts_the_idle_and_no_other() {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(1).burst(10)).clock(clock).build();
    let janitor = limiter.janitor(OFTEN);
    for round in 0..5 {
        for key in 0..50 {
            assert!(limiter.try_acquire_n(&key, if key < 10 { 10 } else { 1 }).is_ok(), "{key} is full");
        }
        // Forty keys are full for 2 s, and the first ten are not.
        mock.advance(Duration::from_millis(3_100));
        wait_until("forty are evicted", || limiter.len() == 10);
        assert!((0..10).all(|key| limiter.try_acquire_n(&key, 4).is_err()), "round {round}: still limited");
        mock.advance(Duration::from_secs(20));
        wait_until("the others go, too", || limiter.is_empty());
        assert!(janitor.is_running());
    }
    drop(janitor);
    assert_eq!(limiter.stats().evicted, 250, "a round that is under way is finished first");
}

/// Dropping a janitor waits for the end of its thread, which then holds no part of the limiter.
#[test]
fn a_janitor_stops_when_it_is_dropped() {
    let (clock, _mock) = Clock::mock();
    for interval in [OFTEN, NEVER, Duration::ZERO] {
        let probe = Arc::new(());
        let limiter = RateLimiter::<Vec<u8>, Quota, Tied>::stored(Quota::per_second(1)).clock(clock.clone());
        let limiter = limiter.hasher(Tied(Arc::clone(&probe))).build();
        let janitor = limiter.janitor(interval);
        let others = [limiter.janitor(interval), limiter.janitor(NEVER)];
        assert!(janitor.is_running() && others.iter().all(tollgate::Janitor::is_running));
        drop(janitor);
        assert!(others.iter().all(tollgate::Janitor::is_running));
        drop(others);
        drop(limiter);
        assert_eq!(Arc::strong_count(&probe), 1, "no thread holds the limiter");
    }
}

/// A hasher whose handle tells whether its limiter still exists.
#[derive(Clone, Default)]
struct Tied(#[expect(dead_code, reason = "held for its count")] Arc<()>);

impl BuildHasher for Tied {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        DefaultHasher::new()
    }
}

#[test]
fn a_janitor_stops_when_its_limiter_is_gone() {
    let (clock, _mock) = Clock::mock();
    let limiter = RateLimiter::<u64, Quota, Tied>::stored(Quota::per_second(1)).clock(clock).build();
    let clone = limiter.clone();
    let janitor = limiter.janitor(OFTEN);
    assert!(clone.try_acquire(&1).is_ok());
    drop(limiter);
    assert!(janitor.is_running(), "there is another handle");
    drop(clone);
    wait_until("the thread ends", || !janitor.is_running());
}
