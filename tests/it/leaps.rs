// promise: law, never-late
//! Clocks whose readings leap, as those of an emulated processor do, or of cores that differ.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use tollgate::{Clock, Denied, Granted, Quota, RateLimiter, TokenBucket};

use super::InStore;
use crate::support::{HOUR, SECOND, ns};

const MS: u64 = SECOND / 1_000;
/// A bucket fills in 2.5 s.
const BURST: u64 = 5_000;
const QUOTA: Quota = Quota::per_second(2_000).burst(BURST);
const FILL: u64 = BURST * MS / 2;
/// The skew between the clocks of two cores.
const SKEW: u64 = 4 * SECOND;

thread_local! {
    /// The lead of this thread's core.
    static LEAD: Cell<u64> = const { Cell::new(0) };
}

/// A clock that a test sets.
#[derive(Clone)]
struct Line(Arc<AtomicU64>);

type Takes<'a> = [&'a (dyn Fn() -> Result<Granted, Denied> + Sync); 2];

impl Line {
    /// Runs a test on a bucket and on a key, each on a clock of its own.
    fn on_each(test: impl Fn(&Line, &(dyn Fn() -> Result<Granted, Denied> + Sync))) {
        for is_key in [false, true] {
            let line = Line(Arc::new(AtomicU64::new(10 * HOUR)));
            let now = Arc::clone(&line.0);
            let clock = Clock::from_fn(move || ns(now.load(Relaxed) + LEAD.get()));
            let bucket = TokenBucket::builder(QUOTA).clock(clock.clone()).build();
            let limiter = RateLimiter::<u64>::stored(QUOTA).clock(clock).build();
            let takes: Takes<'_> = [&|| bucket.try_acquire(), &|| limiter.try_acquire(&7)];
            test(&line, takes[usize::from(is_key)]);
        }
    }

    fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn set(&self, now: u64) {
        self.0.store(now, Relaxed);
    }

    fn advance(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }
}

/// Takes until a refusal, and returns the number of grants. The refusal comes without a token left,
/// tells at most the time to fill and `lag`, and its wait is enough.
fn drain(line: &Line, take: &dyn Fn() -> Result<Granted, Denied>, lag: u64) -> u64 {
    for granted in 0.. {
        let Err(denied) = take() else { continue };
        let wait = denied.retry_after().expect("a token comes");
        assert_eq!(denied.remaining(), 0);
        assert!(wait <= ns(FILL + lag), "{wait:?} after a leap");
        line.advance(u64::try_from(wait.as_nanos()).expect("it is short"));
        assert!(take().is_ok(), "the wait is enough");
        return granted;
    }
    unreachable!("a bucket is finite")
}

/// A leap of a reading, and the tokens that an empty bucket has at it and after it, each as a burst
/// at most: for a leap ahead, and for a leap back.
const LEAPS: [(u64, [u64; 2], [u64; 2]); 7] = [
    // Behind the bucket by up to 4 s a reading earns nothing and loses nothing.
    (2 * SECOND, [4_000, 0], [0, 0]),
    (3_900 * MS, [BURST, 0], [0, 0]),
    // Beyond it the bucket goes on from the earlier time at once, and earns each step ahead.
    (5 * SECOND, [BURST, 0], [0, BURST]),
    (1_891 * SECOND, [BURST, 0], [0, BURST]),
    (3_599 * SECOND, [BURST, 0], [0, BURST]),
    (3_601 * SECOND, [BURST, 0], [0, BURST]),
    // Beyond an hour and 4 s it is full once.
    (3_605 * SECOND, [BURST, BURST], [BURST, BURST]),
];

#[test]
fn one_reading_that_leaps_refuses_no_token_and_tells_no_long_wait() {
    for (leap, _, _) in LEAPS {
        for ahead in [true, false] {
            Line::on_each(|line, take| {
                let began = line.now();
                for call in 0..10 {
                    let at = began + call * MS;
                    let leapt = if ahead { at + leap } else { at - leap };
                    line.set(if call == 4 { leapt } else { at });
                    assert!(take().is_ok(), "call {call}, a leap of {leap}, ahead: {ahead}");
                }
                let lag = if ahead && leap <= SKEW { leap } else { 0 };
                let more = drain(line, take, lag);
                assert!(
                    (BURST - 10..=BURST).contains(&more),
                    "{more} after a leap of {leap}, ahead: {ahead}"
                );
            });
        }
    }
}

#[test]
fn an_empty_bucket_earns_each_step_ahead_of_a_reading_that_leaps() {
    for (leap, ahead, back) in LEAPS {
        for (tokens, is_ahead) in [(ahead, true), (back, false)] {
            Line::on_each(|line, take| {
                let granted = || (0..=BURST).take_while(|_| take().is_ok()).count() as u64;
                let began = line.now();
                assert_eq!(granted(), BURST);
                line.set(if is_ahead { began + leap } else { began - leap });
                let at_leap = granted();
                line.set(began);
                assert_eq!([at_leap, granted()], tokens, "a leap of {leap}, ahead: {is_ahead}");
                let lag = if is_ahead && leap <= SKEW { leap } else { 0 };
                assert_eq!(drain(line, take, lag), 0);
            });
        }
    }
}

/// The reading of one core is ahead by all of the skew. Its time is earned once, and each wait is
/// enough on each core.
#[test]
fn cores_that_differ_by_the_skew_earn_it_once() {
    const THREADS: u64 = 8;
    const CALLS: u64 = 2_500;
    Line::on_each(|line, take| {
        let began = line.now();
        let work = |ahead: bool| {
            LEAD.set(if ahead { SKEW } else { 0 });
            let mut granted = 0;
            for _ in 0..CALLS {
                line.advance(1_000);
                match take() {
                    Ok(_) => granted += 1,
                    Err(denied) => {
                        assert_eq!(denied.remaining(), 0);
                        assert!(denied.retry_after().expect("a token comes") <= ns(SKEW + FILL));
                    }
                }
            }
            granted
        };
        let granted: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || work(number == 0))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no call panics")).sum()
        });
        let passed = line.now() - began + SKEW;
        // A token each half of a millisecond.
        let most = BURST + passed.div_ceil(MS / 2);
        assert!((BURST..=most).contains(&granted), "{granted} of {most}");
        drain(line, take, SKEW);
    });
}
