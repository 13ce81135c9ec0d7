// promise: law, never-late
//! Faults that other limiters have, as of 2026, each on the run that shows it. A test's comment
//! names the limiter.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::{Clock, MockClock, Window, WindowCounter};

use crate::support::Random;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the windows of each kind with this many tokens in a period.
fn kinds(limit: u64, period: Duration) -> [Window; 4] {
    let window = Window::per(limit, period);
    [window, window.utc(), window.sliding(), window.weighted()]
}

fn counter(window: Window) -> (WindowCounter, MockClock) {
    let (clock, mock) = Clock::mock();
    (WindowCounter::builder(window).clock(clock).build(), mock)
}

/// Takes the tokens of each `(milliseconds, tokens)`, and returns those that were granted.
fn granted(window: Window, asked: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (counter, mock) = counter(window);
    let mut now = 0;
    let mut ask = |&&(at, n): &&(u64, u64)| {
        mock.advance(Duration::from_millis(at - now));
        now = at;
        counter.try_acquire_n(n).is_ok()
    };
    asked.iter().filter(|asked| ask(asked)).copied().collect()
}

/// Returns the most tokens in any time of `period` milliseconds.
fn most_in_any(period: u64, granted: &[(u64, u64)]) -> u64 {
    let after = |from: u64| granted.iter().filter(move |(at, _)| (from..from + period).contains(at));
    granted.iter().map(|(from, _)| after(*from).map(|(_, n)| n).sum()).max().unwrap_or(0)
}

/// resilience4j's `AtomicRateLimiter`: a reservation that straddles two cycles runs in the later
/// one. Of 5, 3, 4, 1, 1 and 1 tokens it runs 7 of 5 in a cycle, and up to 9 of random ones.
#[test]
fn no_cycle_runs_more_than_its_limit_whatever_calls_weigh() {
    for seed in 0..200_u64 {
        let (counter, mock) = counter(Window::per(5, SECOND).utc());
        let mut random = Random(seed);
        // A refused call comes back after the time that it was told.
        let calls: Vec<(u64, u64)> = match seed {
            0 => vec![(0, 5), (0, 3), (0, 4), (2_000, 1), (2_000, 1), (2_000, 1)],
            _ => (0..60).map(|_| (random.below(30_000), 1 + random.below(5))).collect(),
        };
        let asked: u64 = calls.iter().map(|(_, n)| n).sum();
        let mut calls: BTreeMap<(u64, usize), u64> =
            calls.into_iter().enumerate().map(|(id, (at, n))| ((at, id), n)).collect();
        let (mut now, mut cycles) = (0, BTreeMap::<u64, u64>::new());
        while let Some(((at, id), n)) = calls.pop_first() {
            mock.advance(Duration::from_millis(at - now));
            now = at;
            match counter.try_acquire_n(n) {
                Ok(_) => *cycles.entry(now / 1_000).or_default() += n,
                Err(denied) => {
                    let wait = denied.retry_after().expect("it fits the limit").as_millis();
                    calls.insert((now + u64::try_from(wait).unwrap(), id), n);
                }
            }
        }
        assert!(cycles.values().all(|ran| *ran <= 5), "{cycles:?}");
        assert_eq!(cycles.values().sum::<u64>(), asked, "each call runs at last");
    }
}

/// Upstash's token bucket: a refused request is charged, so a client that goes on asking for 3 of
/// 10 tokens is locked out. 3 requests are granted in 10 minutes, where 180 are due.
#[test]
fn a_client_that_goes_on_asking_is_not_locked_out() {
    let asked: Vec<_> = (0..6_000).map(|tenth| (100 * tenth, 3)).collect();
    for window in kinds(10, 10 * SECOND) {
        // A sliding window grants 3 requests in each period and sub-window.
        let due = if window.sub_window().is_some() { 160 } else { 170 };
        let requests = granted(window, &asked).len();
        assert!((due..=203).contains(&requests), "{window}: {requests}");
    }
    assert_eq!(granted(Window::per(10, 10 * SECOND).utc(), &asked).len(), 180);
}

/// Upstash's sliding window: a request of 5 where 1 is left is refused, and charged.
#[test]
fn a_refused_request_is_not_charged() {
    for window in kinds(10, SECOND) {
        let (counter, mock) = counter(window);
        assert!(counter.try_acquire_n(9).is_ok());
        assert!(counter.try_acquire_n(5).is_err());
        mock.advance(Duration::from_millis(2));
        assert_eq!((counter.peek().remaining(), counter.try_acquire().is_ok()), (1, true), "{window}");
    }
}

/// trypema: a count leaves with the first stamp of its bucket. 19 of 10 are granted within a
/// second, and 59 where the cost of a request is not compared.
#[test]
fn no_second_has_more_than_the_limit_at_the_edge_of_a_sub_window() {
    let window = Window::per(10, SECOND).sliding();
    let ones = |at: u64, count: usize| std::iter::repeat_n((at, 1), count);
    let asked: Vec<_> =
        ones(0, 1).chain(ones(100, 9)).chain(ones(1_001, 10)).chain(ones(1_100, 10)).collect();
    let grants = granted(window, &asked);
    assert_eq!((grants.len() > 10, most_in_any(1_000, &grants)), (true, 10));
    let asked: Vec<_> = ones(0, 9).chain([(1, 50)]).collect();
    assert_eq!(most_in_any(1_000, &granted(window, &asked)), 9);
}

/// Kong's sliding window: a client at twice its limit gets nothing after the first window, as
/// refused requests are counted.
#[test]
fn a_client_at_twice_its_limit_gets_its_limit() {
    let asked: Vec<_> = (0..4_000).map(|request| (5 * request, 1)).collect();
    for window in kinds(100, SECOND) {
        let grants = granted(window, &asked);
        // A sliding window grants its limit in each period and sub-window.
        let least = if window.sub_window().is_some() { 1_660 } else { 1_980 };
        assert!((least..=2_100).contains(&grants.len()), "{window}: {}", grants.len());
        let last = &grants[grants.len() - 60..];
        assert!(last[0].0 > 19_000, "{window}: it is served to the end");
    }
}

/// tower-resilience's counter: a token is granted while the estimate is below the limit. A
/// nanosecond after the edge that is an 11th token of 10, and a wait may be told too short.
#[test]
fn a_weighted_window_grants_no_token_right_after_a_full_one() {
    let (counter, mock) = counter(Window::per(10, SECOND).weighted());
    assert!(counter.try_acquire_n(10).is_ok());
    mock.advance(SECOND + Duration::from_nanos(1));
    let wait = counter.try_acquire().unwrap_err().retry_after().unwrap();
    mock.advance(wait - Duration::from_nanos(1));
    assert!(counter.try_acquire().is_err());
    mock.advance(Duration::from_nanos(1));
    assert!(counter.try_acquire().is_ok());
}
