// promise: never-late
//! Callers that give up after a time: their places go to the callers behind them.
//!
//! Each case is a load above the rate, for some time on tokio's paused clock. The tokens earned are
//! the burst and the rate times the time; at least 98 % of them are served.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Clock, Denied, Granted, Quota, RateLimiter, TokenBucket};

use super::InStore;
use crate::support::{Random, size};

/// Returns a clock that stands while tokio's is paused.
fn tokios() -> Clock {
    let start = Instant::now();
    Clock::from_fn(move || start.elapsed())
}

fn on_a_paused_clock<F: Future>(run: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    LocalSet::new().block_on(&runtime.expect("a runtime without a driver for sockets"), run)
}

/// A load: callers that come at equal times, each of which gives up after a patience.
#[derive(Clone, Copy, Debug)]
struct Load {
    quota: Quota,
    max_debt: Option<u64>,
    /// Callers a second.
    callers: u64,
    seconds: u64,
    /// Least and greatest patience, in milliseconds.
    patience: (u64, u64),
}

const SECOND: u64 = 1_000;

const LOADS: [Load; 6] = [
    Load { quota: Quota::per_second(10), max_debt: None, callers: 50, seconds: 60, patience: (500, 500) },
    Load { quota: Quota::per_second(10), max_debt: None, callers: 12, seconds: 60, patience: (500, 500) },
    Load {
        quota: Quota::per_second(10).burst(100),
        max_debt: None,
        callers: 20,
        seconds: 60,
        patience: (5 * SECOND, 5 * SECOND),
    },
    Load {
        quota: Quota::per_second(10),
        max_debt: Some(1_000),
        callers: 20,
        seconds: 60,
        patience: (5 * SECOND, 5 * SECOND),
    },
    Load { quota: Quota::per_second(10), max_debt: None, callers: 50, seconds: 60, patience: (100, 1_000) },
    Load { quota: Quota::per_second(100), max_debt: None, callers: 500, seconds: 8, patience: (500, 500) },
];

impl Load {
    fn seconds(&self) -> u64 {
        size(self.seconds / 4, self.seconds)
    }

    /// Returns the tokens that the load could be served.
    fn earned(&self) -> u64 {
        self.quota.capacity() + self.quota.tokens() * self.seconds()
    }

    /// Runs the load, and returns the number of callers served.
    async fn run<F: Future<Output = bool> + 'static>(self, wait: impl Fn() -> F + 'static) -> u64 {
        let (served, mut random) = (Rc::new(Cell::new(0)), Random(1));
        let wait = Rc::new(wait);
        let start = Instant::now();
        let tasks: Vec<_> = (0..self.callers * self.seconds())
            .map(|caller| {
                let comes = Duration::from_micros(caller * 1_000_000 / self.callers);
                let patience = self.patience.0 + random.below(self.patience.1 - self.patience.0 + 1);
                let (served, wait) = (served.clone(), wait.clone());
                tokio::task::spawn_local(async move {
                    tokio::time::sleep_until(start + comes).await;
                    if timeout(Duration::from_millis(patience), wait()).await == Ok(true) {
                        served.set(served.get() + 1);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
        served.get()
    }

    /// Asserts that at least 98 % of the tokens earned are served, and no more than there are.
    fn check(self, form: &str, served: u64) {
        let earned = self.earned();
        println!("{form}, {self:?}: {served} of {earned}");
        // A caller that came in the last instant may wait for its patience.
        let most = earned + self.quota.tokens() * self.patience.1 / SECOND + 1;
        assert!(
            served * 100 >= earned.min(self.callers * self.seconds()) * 98,
            "{form}, {self:?}: {served} of {earned}"
        );
        assert!(served <= most, "{form}, {self:?}: {served} of {most}");
    }

    fn bucket(self) -> TokenBucket {
        let builder = TokenBucket::builder(self.quota).clock(tokios());
        match self.max_debt {
            None => builder.build(),
            Some(debt) => builder.max_debt(debt).unwrap().build(),
        }
    }

    fn limiter(self) -> RateLimiter<String> {
        let builder = RateLimiter::<String>::stored(self.quota).clock(tokios());
        match self.max_debt {
            None => builder.build(),
            Some(debt) => builder.max_debt(debt).unwrap().build(),
        }
    }
}

fn is_granted(decision: Result<Granted, Denied>) -> bool {
    decision.is_ok()
}

#[test]
fn callers_that_give_up_leave_their_tokens_to_others() {
    for load in LOADS {
        on_a_paused_clock(async {
            let bucket = Arc::new(load.bucket());
            let served = load.run(move || {
                let bucket = bucket.clone();
                async move { is_granted(bucket.ask().acquire().await) }
            });
            load.check("acquire", served.await);
        });
    }
}

#[test]
fn callers_of_a_key_that_give_up_leave_their_tokens_to_others() {
    for load in LOADS {
        on_a_paused_clock(async {
            let limiter = load.limiter();
            let served = load.run(move || {
                let limiter = limiter.clone();
                async move { is_granted(limiter.key("ada").acquire().await) }
            });
            load.check("acquire of a key", served.await);
        });
    }
}

#[test]
fn limited_calls_that_are_given_up_leave_their_tokens_to_others() {
    for load in LOADS {
        on_a_paused_clock(async {
            let bucket: &'static TokenBucket = Box::leak(Box::new(load.bucket()));
            let calls = Rc::new(bucket.ask().limited(async |n: u64| n));
            let served = load.run(move || {
                let calls = calls.clone();
                async move { calls.call(1).await.is_ok() }
            });
            load.check("limited", served.await);
        });
    }
}

/// Requests that a client takes back, and that wait by a timer of the caller.
#[test]
fn requests_that_go_away_leave_their_tokens_to_others() {
    for load in LOADS {
        on_a_paused_clock(async {
            let limiter = load.limiter();
            let served = load.run(move || {
                let limiter = limiter.clone();
                async move {
                    let request = limiter.key("ada").within(Duration::from_secs(3_600));
                    request.acquire_by(tokio::time::sleep).await.is_ok()
                }
            });
            load.check("acquire_by", served.await);
        });
    }
}

/// The same, where each deadline is told ahead: a caller that would come too late is refused at
/// once.
#[test]
fn callers_with_a_deadline_use_all_tokens() {
    for load in LOADS {
        on_a_paused_clock(async {
            let bucket = Arc::new(load.bucket());
            let patience = Duration::from_millis(load.patience.0);
            let served = load.run(move || {
                let bucket = bucket.clone();
                async move { is_granted(bucket.ask().within(patience).acquire().await) }
            });
            load.check("acquire_within", served.await);
        });
    }
}

/// A hundred callers at once at a burst of 1, without a deadline: none is refused, and each comes
/// in its turn.
#[test]
fn patient_callers_are_served_at_any_burst() {
    on_a_paused_clock(async {
        let bucket = Arc::new(TokenBucket::builder(Quota::per_second(100).burst(1)).clock(tokios()).build());
        let limiter = RateLimiter::<String>::stored(Quota::per_second(100).burst(1)).clock(tokios()).build();
        let start = Instant::now();
        let tasks = (0..100).map(|_| {
            let (bucket, limiter) = (bucket.clone(), limiter.clone());
            tokio::task::spawn_local(async move {
                (is_granted(bucket.ask().acquire().await), is_granted(limiter.key("ada").acquire().await))
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(task.await.unwrap(), (true, true));
        }
        let took = start.elapsed();
        assert!((990..=1_010).contains(&took.as_millis()), "{took:?}");
    });
}

/// The head leaves, and the caller behind it moves up: it is served at the head's time, not at its
/// own.
#[test]
fn a_caller_whose_turn_comes_earlier_is_woken() {
    on_a_paused_clock(async {
        let bucket = Arc::new(TokenBucket::builder(Quota::per_second(10).burst(10)).clock(tokios()).build());
        assert!(bucket.try_acquire_n(10).is_ok());
        let start = Instant::now();
        let first = bucket.clone();
        let first = tokio::task::spawn_local(async move {
            let _ = timeout(Duration::from_millis(50), first.ask().n(10).acquire()).await;
        });
        sleep(Duration::from_millis(1)).await;
        assert!(bucket.ask().acquire().await.is_ok());
        assert_eq!(start.elapsed(), Duration::from_millis(100));
        first.await.unwrap();
    });
}

/// Tokens that come back go to the callers in line, in their order, and to no plain take.
#[test]
fn tokens_that_come_back_move_all_callers_up() {
    on_a_paused_clock(async {
        let quota = Quota::per_second(1).burst(10);
        let bucket = Arc::new(TokenBucket::builder(quota).clock(tokios()).build());
        let limiter = Arc::new(RateLimiter::<String>::stored(quota).clock(tokios()).build());
        let (hold, hold_of_key) =
            (bucket.ask().n(10).hold().unwrap(), limiter.key("ada").n(10).hold().unwrap());
        let start = Instant::now();
        // They come after 4, 7 and 8 s. Two tokens come back after 1 s, and five after 2 s.
        let callers = [4, 3, 1].map(|n| {
            let (bucket, limiter) = (bucket.clone(), limiter.clone());
            tokio::task::spawn_local(async move {
                let wait = Duration::from_millis(7_500);
                let of_bucket =
                    async { (is_granted(bucket.ask().n(n).within(wait).acquire().await), start.elapsed()) };
                let of_key = async {
                    (is_granted(limiter.key("ada").n(n).within(wait).acquire().await), start.elapsed())
                };
                tokio::join!(of_bucket, of_key)
            })
        });
        sleep(Duration::from_secs(1)).await;
        assert_eq!((hold.settle(8), hold_of_key.settle(8)), (0, 0));
        assert!(bucket.try_acquire().is_err() && limiter.try_acquire("ada").is_err());
        sleep(Duration::from_secs(1)).await;
        bucket.refund(5);
        limiter.refund("ada", 5);
        for (caller, (granted, at)) in callers.into_iter().zip([(true, 2), (true, 2), (false, 0)]) {
            let served = (granted, Duration::from_secs(at));
            assert_eq!(caller.await.unwrap(), (served, served));
        }
        assert_eq!((bucket.peek().remaining(), limiter.peek("ada").remaining()), (2, 2));
    });
}

/// Four threads with 25 calls each, at a burst of 1: none is refused, by any way to wait.
#[test]
fn patient_threads_are_served_at_any_burst() {
    let quota = Quota::per_second(20_000).burst(1);
    let bucket = TokenBucket::new(quota);
    let limiter = RateLimiter::<String>::stored(quota).build();
    let (calls, calls_of_a_key) = (bucket.ask().limited(|n: u64| n), limiter.key("ada").limited(|n: u64| n));
    let ways: [&(dyn Fn() -> bool + Sync); 4] = [
        &|| bucket.ask().blocking_acquire().is_ok(),
        &|| limiter.key("ada").blocking_acquire().is_ok(),
        &|| calls.blocking_call(1).is_ok(),
        &|| calls_of_a_key.blocking_call(1).is_ok(),
    ];
    for (index, way) in ways.into_iter().enumerate() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || assert!((0..25).all(|_| way()), "way {index}"));
            }
        });
    }
}
