// promise: law
//! A clock that stalls, jumps ahead, goes back, or alternates. Each answer is compared with the
//! ideal bucket, and the sum of grants with the law.

use std::time::Duration;

use tollgate::{Clock, Denied, Granted, MockClock, Quota, RateLimiter, TokenBucket};
use tollgate_testing::Random;
use tollgate_testing::reference::{Answer, Ideal};
use tollgate_verify::watchdog::Watchdog;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const START: u64 = 1_000 * DAY;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("below 2^64 ns")
}

fn answer(decision: Result<Granted, Denied>) -> Answer {
    match decision {
        Ok(granted) => Answer {
            granted: true,
            remaining: granted.remaining(),
            retry_after: None,
            reset_after: Some(nanos(granted.reset_after())),
        },
        Err(denied) => Answer {
            granted: false,
            remaining: denied.remaining(),
            retry_after: denied.retry_after().map(nanos),
            reset_after: None,
        },
    }
}

/// A bucket, a key of a map and a key of a table under one quota and one clock, and the ideal of
/// each.
struct Trio {
    quota: Quota,
    mock: MockClock,
    now: u64,
    bucket: TokenBucket,
    /// A limiter over either store.
    limiters: [RateLimiter<u64>; 2],
    ideals: [Ideal; 3],
    granted: [u64; 3],
    random: Random,
}

impl Trio {
    fn of(quota: Quota) -> Trio {
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_nanos(START));
        let ideal = Ideal::new(quota.tokens(), nanos(quota.period()), quota.capacity());
        Trio {
            quota,
            mock,
            now: START,
            bucket: TokenBucket::builder(quota).clock(clock.clone()).build(),
            limiters: [
                RateLimiter::builder(quota).clock(clock.clone()).max_keys(1).build(),
                RateLimiter::builder(quota).clock(clock).max_keys(1).inline().unwrap().build(),
            ],
            ideals: [ideal.clone(), ideal.clone(), ideal],
            granted: [0; 3],
            random: Random(quota.capacity()),
        }
    }

    fn go_to(&mut self, now: u64) {
        self.mock.advance(Duration::from_nanos(now.saturating_sub(self.now)));
        self.mock.rewind(Duration::from_nanos(self.now.saturating_sub(now)));
        self.now = now;
    }

    /// Takes as many tokens as there may be, or fewer, or one.
    fn take(&mut self) {
        let burst = self.quota.capacity();
        let n = match self.random.below(4) {
            0 => burst,
            1 => 1 + self.random.below(burst),
            _ => 1,
        };
        let [map, table] = &self.limiters;
        let decisions = [self.bucket.try_acquire_n(n), map.try_acquire_n(&7, n), table.try_acquire_n(&7, n)];
        for (which, decision) in decisions.into_iter().enumerate() {
            self.granted[which] += decision.map_or(0, |granted| granted.tokens());
            if let Err(what) = self.ideals[which].take(self.now, n, answer(decision)) {
                panic!("{}, {which}: {what}", self.quota);
            }
        }
    }

    /// Evicts the key if it may be evicted: a new one is as full.
    fn evict(&mut self) {
        for (limiter, ideal) in self.limiters.iter().zip(&mut self.ideals[1..]) {
            if limiter.evict_idle() == 1 {
                let (tokens, period) = (self.quota.tokens(), nanos(self.quota.period()));
                *ideal = Ideal::new(tokens, period, self.quota.capacity());
            }
        }
    }

    /// Checks that at most the burst and the tokens of `span` nanoseconds were granted. Each clock
    /// that was set back and believed adds a tick's worth.
    fn keeps_the_law(&self, span: u128, jumps: u128) {
        // The reference counts a token as the period in nanoseconds, times 2^16.
        let token = u128::from(nanos(self.quota.period())) << 16;
        let tick = u128::try_from(self.ideals[0].tick()).expect("a tick is positive");
        let came = ((span * u128::from(self.quota.tokens())) << 16) + tick * (1 + jumps);
        let law = u128::from(self.quota.capacity()) + came / token;
        println!("{}: {:?} granted of {law}", self.quota, self.granted);
        for granted in self.granted {
            assert!(
                granted > 0 && u128::from(granted) <= law,
                "{}: {granted} granted, not {law}",
                self.quota
            );
        }
    }
}

/// Runs a test for quotas from one a month to billions a second.
fn for_each_quota(seconds: u64, run: impl Fn(Trio)) {
    let _watchdog = Watchdog::of("a clock", seconds);
    for quota in [
        Quota::per_second(1),
        Quota::per_second(100).burst(200),
        Quota::per_second(7).burst(10),
        Quota::per_second(12_345).burst(777),
        Quota::per_second(1_000_000).burst(10),
        Quota::per_second(1_000_000).burst(1_000_000),
        Quota::per_second(1_000_000_000).burst(1_000_000),
        Quota::per_hour(1_000),
        Quota::per_day(5),
        Quota::every(Duration::from_nanos(30 * DAY)),
    ] {
        run(Trio::of(quota));
    }
}

/// Returns the nanoseconds of about one token, divided by `parts`.
fn token(quota: Quota, parts: u64) -> u64 {
    (nanos(quota.period()) / quota.tokens() / parts).max(1)
}

#[test]
fn a_clock_that_stalls_earns_what_it_shows() {
    for_each_quota(600, |mut trio| {
        for _ in 0..200 {
            for _ in 0..20 {
                trio.take();
            }
            let on = trio.random.below(3 * token(trio.quota, 1)) + 1;
            trio.go_to(trio.now + on);
        }
        trio.keeps_the_law(u128::from(trio.now - START), 0);
    });
}

/// For some quotas the jump is several turns of the stamp: then fewer tokens are earned, and never
/// more.
#[test]
fn a_clock_that_jumps_ahead_by_a_hundred_days_fills_a_bucket_and_no_more() {
    for_each_quota(600, |mut trio| {
        let mut bursts = 0;
        for round in 0..200 {
            let before = trio.granted[0];
            for _ in 0..20 {
                trio.take();
            }
            // While the clock stands, only the tokens of the jump are granted.
            let more = trio.granted[0] - before;
            assert!(more <= trio.quota.capacity(), "{}: {more} after a jump", trio.quota);
            bursts += u64::from(more == trio.quota.capacity());
            trio.go_to(trio.now + 100 * DAY + round);
            trio.evict();
        }
        println!("{}: {bursts} bursts in 200 jumps", trio.quota);
        trio.keeps_the_law(u128::from(trio.now - START), 0);
    });
}

#[test]
fn a_clock_that_is_set_back_by_an_hour_mints_nothing() {
    for_each_quota(600, |mut trio| {
        let (mut forward, mut jumps) = (0, 0);
        for _ in 0..100 {
            for _ in 0..20 {
                let on = trio.random.below(2 * token(trio.quota, 4)) + 1;
                trio.go_to(trio.now + on);
                forward += u128::from(on);
                trio.take();
            }
            trio.go_to(trio.now - HOUR);
            jumps += 1;
            for _ in 0..20 {
                trio.take();
            }
            trio.evict();
        }
        trio.keeps_the_law(forward, jumps);
    });
}

/// The law counts the time between the earliest reading and the latest, not each step on the way.
#[test]
fn a_clock_that_alternates_within_the_window_earns_no_step_twice() {
    for_each_quota(600, |mut trio| {
        let jitter = trio.ideals[0].jitter();
        let mut latest = START;
        for round in 0..4_000 {
            let back = match round % 4 {
                0 => 1,
                1 => jitter,
                2 => trio.random.below(jitter) + 1,
                _ => token(trio.quota, 3).min(jitter),
            };
            trio.go_to(latest - back);
            trio.take();
            latest += trio.random.below(2 * token(trio.quota, 4)) + 1;
            trio.go_to(latest);
            trio.take();
        }
        trio.keeps_the_law(u128::from(latest - START), 0);
    });
}
