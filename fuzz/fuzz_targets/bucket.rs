//! One bucket: any quota, a clock that is moved both ways, any take. Each answer is held against the ideal
//! bucket, and so is a look into it afterwards; each `retry_after` is tried a nanosecond early and when due.

#![no_main]

#[path = "../../tests/reference/mod.rs"]
mod reference;

use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use reference::{Answer, Ideal, Unit};
use tollgate::{Clock, MockClock, Quota, Reason, TokenBucket};

/// The last reading of the clock: 2^62 ns, less the hour and the jitter that a bucket whose range is no longer
/// than that takes for a jump back.
const LAST: u64 = (1 << 62) - (1 << 42);

#[derive(Arbitrary, Debug)]
struct Case {
    tokens: Spread<44>,
    nanos: Spread<63>,
    burst: Spread<41>,
    start: Spread<62>,
    steps: Steps,
}

/// A number below `2^BITS`, as likely small as large.
#[derive(Clone, Copy, Debug)]
struct Spread<const BITS: u32>(u64);

impl<'a, const BITS: u32> Arbitrary<'a> for Spread<BITS> {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let shift = bytes.int_in_range(0..=BITS - 1)?;
        Ok(Spread(bytes.arbitrary::<u64>()? >> (u64::BITS - BITS + shift)))
    }
}

/// A step for as long as there are bytes, but for 64 at the most.
#[derive(Debug)]
struct Steps(Vec<(Move, Amount)>);

impl<'a> Arbitrary<'a> for Steps {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut steps = Vec::new();
        while !bytes.is_empty() && steps.len() < 64 {
            steps.push(bytes.arbitrary()?);
        }
        Ok(Steps(steps))
    }
}

/// How the clock moves before a take.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Move {
    Still,
    Nanos(u16),
    /// By 256ths of the time of a token.
    Tokens(u16),
    /// By 64ths of the time to fill the bucket.
    Fills(u8),
    /// By the range of the stamp, give or take quarters of a second, up to 2 h 16 min.
    Turn(i16),
    Ahead(Spread<62>),
    /// To a nanosecond before the latest refusal is due, and then to when it is.
    Retry,
    /// Back by what is surely jitter.
    Stale(Spread<62>),
    /// Back by the jitter and quarters of a second, up to 4 h 33 min.
    Back(u16),
    Rewind(Spread<62>),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Amount {
    Few(u8),
    /// 128ths of the burst.
    Part(u8),
    /// The burst and a few more or less.
    Near(i8),
    Any(u64),
}

struct Pair {
    quota: Quota,
    bucket: TokenBucket,
    clock: MockClock,
    ideal: Ideal,
    now: u64,
}

impl Pair {
    fn go_to(&mut self, now: u64) {
        let now = now.min(LAST);
        self.clock.advance(Duration::from_nanos(now.saturating_sub(self.now)));
        self.clock.rewind(Duration::from_nanos(self.now.saturating_sub(now)));
        self.now = now;
    }

    /// Whether `n` tokens were granted and, if they ever will be, the reading at which they are due.
    fn take(&mut self, n: u64) -> (bool, Option<u64>) {
        let burst = self.quota.capacity();
        let answer = match self.bucket.try_acquire_n(n) {
            Ok(granted) => grant(granted.remaining(), granted.reset_after()),
            Err(denied) => {
                assert_eq!(denied.reason(), if n > burst { Reason::TooMany } else { Reason::Empty });
                let retry_after = denied.retry_after().map(nanos);
                Answer { granted: false, remaining: denied.remaining(), retry_after, reset_after: None }
            }
        };
        // What is over the burst is all the same; the reference counts in 128 bits.
        self.compare(n.min(burst + 1), answer);
        let seen = self.bucket.peek();
        self.compare(0, grant(seen.remaining(), seen.reset_after()));
        (answer.granted, answer.retry_after.map(|wait| self.now + wait))
    }

    fn compare(&mut self, n: u64, answer: Answer) {
        if let Err(what) = self.ideal.take(self.now, n, answer) {
            panic!("{}: {what}", self.quota);
        }
    }
}

fn grant(remaining: u64, reset_after: Duration) -> Answer {
    Answer { granted: true, remaining, retry_after: None, reset_after: Some(nanos(reset_after)) }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().expect("a wait is below 2^63 ns")
}

/// The quota, if there is one: it must be refused exactly when a documented bound is broken or the rules of the
/// design find no layout, which they may only above 500 tokens a nanosecond.
fn quota(tokens: u64, nanos: u64, burst: u64) -> Option<Quota> {
    let quota = Quota::try_per(tokens, Duration::from_nanos(nanos), burst).ok();
    let (rate, period) = (u128::from(tokens), u128::from(nanos));
    let bounded = (tokens >= 1 && (1..=1 << 62).contains(&nanos) && (1..=1 << 40).contains(&burst))
        && rate <= 1_000 * period
        && u128::from(burst) * period <= rate << 62;
    let fits = bounded && Unit::choose(tokens, nanos, burst).is_some();
    assert_eq!(quota.is_some(), fits, "{tokens} every {nanos} ns, burst {burst}");
    assert!(fits || !bounded || rate > 500 * period, "{tokens} every {nanos} ns, burst {burst}");
    quota
}

fuzz_target!(|case: Case| {
    let (tokens, period, burst) = (case.tokens.0, case.nanos.0, case.burst.0);
    let Some(quota) = quota(tokens, period, burst) else { return };
    // The time of `n / of` tokens.
    let time = |n: u64, of: u64| {
        let time = u128::from(n) * u128::from(period) / (u128::from(tokens) * u128::from(of));
        u64::try_from(time).unwrap_or(LAST)
    };
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::with_clock(quota, clock);
    let ideal = Ideal::new(tokens, period, burst);
    let jitter = ideal.jitter();
    let unit = Unit::choose(tokens, period, burst).expect("the quota was accepted");
    let range = time(1 << (unit.stamp + unit.scale), 1 << unit.fraction);
    let mut pair = Pair { quota, bucket, clock: mock, ideal, now: 0 };
    pair.go_to(case.start.0);

    // The latest refusal, while nothing has changed it: when it is due, and how much was asked for.
    let mut refused: Option<(u64, u64)> = None;
    for (step, amount) in case.steps.0 {
        let before = pair.now;
        pair.go_to(match step {
            Move::Still | Move::Retry => before,
            Move::Nanos(by) => before + u64::from(by),
            Move::Tokens(by) => before.saturating_add(time(by.into(), 256)),
            Move::Fills(by) => before.saturating_add(time(u64::from(by) * burst, 64)),
            Move::Turn(by) => before.saturating_add(range).saturating_add_signed(i64::from(by) * 250_000_000),
            Move::Ahead(by) => before + by.0,
            Move::Stale(by) => before.saturating_sub(by.0 % (jitter + 1)),
            Move::Back(by) => before.saturating_sub(jitter).saturating_sub(u64::from(by) * 250_000_000),
            Move::Rewind(by) => before.saturating_sub(by.0),
        });
        let due = refused.filter(|(due, _)| (pair.now + 1..=LAST).contains(due));
        if let (Move::Retry, Some((due, n))) = (step, due) {
            pair.go_to(due - 1);
            assert!(!pair.take(n).0, "{quota}: {n} granted before they were due at {due} ns");
            pair.go_to(due);
            assert!(pair.take(n).0, "{quota}: {n} refused when they were due at {due} ns");
            refused = None;
            continue;
        }
        let n = match amount {
            Amount::Few(n) => n.into(),
            Amount::Part(part) => u64::from(part) * burst / 128,
            Amount::Near(by) => burst.saturating_add_signed(by.into()),
            Amount::Any(n) => n,
        };
        let (granted, due) = pair.take(n);
        if granted || pair.now < before {
            refused = None;
        }
        refused = due.map(|due| (due, n)).or(refused);
    }
});
