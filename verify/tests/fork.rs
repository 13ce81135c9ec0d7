// promise: hostile-keys
//! A forked process goes on deciding with a copy of the buckets: parent and child do not see each
//! other's takes.
//!
//! The copy lacks the other threads. A [janitor](tollgate::Janitor) no longer sweeps, which is not
//! needed. A [coarse clock](tollgate::Clock::coarse) stands still, so no token is earned: another
//! reason to fork before limits are made.
//!
//! If another thread was inserting a key at that very moment, the map's own state may be half-way
//! in the copy. Here the other threads decide on known keys, and no such decision can be held up.

#![cfg(unix)]
#![allow(unsafe_code)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Clock, Quota, RateLimiter, Reason, TokenBucket};
use tollgate_distributed::{DistributedLimiter, MemoryStore, OnOutage};
use tollgate_verify::watchdog::Watchdog;

/// Sets a flag when it is dropped, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `child` in a fork of this process. It must end well, and in time.
fn in_a_fork(child: impl FnOnce()) {
    // SAFETY: the child runs Rust code, which POSIX does not promise to work beside other threads.
    // The test is that it works. The child ends without running any code of the parent's.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "it cannot fork");
    if id == 0 {
        let well = catch_unwind(AssertUnwindSafe(child)).is_ok();
        // SAFETY: the call does not return.
        unsafe { libc::_exit(if well { 0 } else { 1 }) };
    }
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut status = 0;
        // SAFETY: the child is ours, and `status` is valid for the answer.
        let ended = unsafe { libc::waitpid(id, &raw mut status, libc::WNOHANG) };
        if ended == id {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child failed: {status}");
            return;
        }
        if Instant::now() > until {
            // SAFETY: as above.
            unsafe { libc::kill(id, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_fork_goes_on_from_where_it_was() {
    goes_on(false);
    goes_on(true);
}

fn goes_on(inline: bool) {
    let _watchdog = Watchdog::of("a fork", 600);
    let (clock, mock) = Clock::mock();
    let quota = Quota::per_hour(5);
    let bucket = TokenBucket::builder(quota).clock(clock.clone()).build();
    let builder = RateLimiter::<String>::builder(quota).clock(clock).max_keys(2_000);
    let limiter = if inline { builder.inline().unwrap() } else { builder }.build();
    assert!(bucket.try_acquire_n(2).is_ok() && limiter.try_acquire_n("known", 2).is_ok());
    let rest_of = |known: u64| {
        assert_eq!(bucket.ask().n(10).acquire_up_to().tokens(), known);
        assert_eq!(limiter.key("known").n(10).acquire_up_to().tokens(), known);
    };
    in_a_fork(|| {
        rest_of(3);
        // The map grows, and is swept.
        for key in 0..1_000 {
            assert_eq!(limiter.key(&key.to_string()).n(10).acquire_up_to().tokens(), 5);
        }
        mock.advance(Duration::from_secs(3_605));
        assert_eq!(limiter.evict_idle(), 1_001);
        rest_of(5);
    });
    rest_of(3);
    assert_eq!(limiter.len(), 1);
}

/// Forks in the middle of decisions of other threads, on the processor's counter. The threads are
/// gone in the copy.
#[test]
fn a_fork_in_the_middle_of_decisions_goes_on() {
    goes_on_in_the_middle(false);
    goes_on_in_the_middle(true);
}

fn goes_on_in_the_middle(inline: bool) {
    const KEYS: u64 = 8;
    let _watchdog = Watchdog::of("a busy fork", 600);
    let quota = Quota::per_second(1_000_000).burst(1_000);
    let builder = RateLimiter::<u64>::builder(quota);
    let limiter = if inline { builder.max_keys(100).inline().unwrap() } else { builder }.build();
    for key in 0..KEYS {
        assert!(limiter.try_acquire(&key).is_ok());
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for index in 0..3 {
            let (limiter, done) = (&limiter, &done);
            scope.spawn(move || {
                let mut key = index;
                while !done.load(Relaxed) {
                    key = (key + 1) % KEYS;
                    let _ = limiter.try_acquire(&key);
                }
            });
        }
        let _stop = Stop(&done);
        for _ in 0..50 {
            let start = limiter.now();
            in_a_fork(|| {
                let mut granted = [0; KEYS as usize];
                while granted.iter().any(|granted| *granted < 2 * quota.capacity()) {
                    for key in 0..KEYS {
                        granted[key as usize] += u64::from(limiter.try_acquire(&key).is_ok());
                    }
                }
                let span = limiter.now().since(start).as_micros() as u64;
                assert!(granted.iter().all(|granted| *granted <= quota.capacity() + span + 1));
            });
        }
    });
}

/// A shared limiter has no background task in the copy: it decides by its policy, without a wait.
#[test]
fn a_shared_limiter_in_a_fork_does_not_wait() {
    let _watchdog = Watchdog::of("a fork of a shared limiter", 600);
    let runtime = || -> Runtime { Builder::new_current_thread().enable_time().build().unwrap() };
    let parent = runtime();
    let limiter = parent.block_on(async {
        let store = MemoryStore::new(|| 1_000_000);
        let limiter = DistributedLimiter::<u64, _>::builder(Quota::per_hour(5), store);
        let limiter = limiter.name("fork").exact().deadline(Duration::from_secs(10));
        limiter.on_outage(OnOutage::Deny).build().unwrap()
    });
    parent.block_on(limiter.ask(&1)).unwrap();
    in_a_fork(|| {
        runtime().block_on(async {
            let begun = Instant::now();
            let denied = limiter.ask(&1).await.unwrap_err();
            assert_eq!(denied.reason(), Reason::Unavailable);
            limiter.shutdown().await;
            assert!(begun.elapsed() < Duration::from_secs(5));
        });
    });
    assert_eq!(parent.block_on(limiter.ask(&1)).unwrap().remaining(), 3);
}

/// In a process that may have no more memory, a table that does not fit is an error, and no end of
/// the process. One that was tried before is then a map.
#[test]
fn a_table_without_memory_is_an_error_or_a_map() {
    let _watchdog = Watchdog::of("a fork without memory", 600);
    let builder = || RateLimiter::<u64>::builder(Quota::per_hour(1));
    let tried = builder().max_keys(16_000_000).inline().expect("there is memory");
    in_a_fork(|| {
        let statm = fs::read_to_string("/proc/self/statm").expect("Linux tells");
        let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
        let most = pages * 4_096 + 64 * 1_048_576;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit is valid, and of this process alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        let error = builder().max_keys(16_000_000).inline().expect_err("they take 341 MB").to_string();
        let (told, fit) = error.rsplit_once(' ').expect("a sentence");
        assert_eq!(told, "a number of keys to allocate of 16000000 is out of bounds: 0 to");
        let fit: usize = fit.parse().expect("a number");
        assert!((500_000..=4_000_000).contains(&fit), "{error}");
        for limiter in [tried.build(), builder().max_keys(fit).inline().expect("it fits").build()] {
            assert_eq!((0..1_000).filter(|key| limiter.try_acquire(key).is_ok()).count(), 1_000);
            assert_eq!((limiter.try_acquire(&7).is_ok(), limiter.len()), (false, 1_000));
        }
    });
}
