// promise: never-late, headers
//! The times to the next tokens, told by a grant and by a look, compared with the waits of
//! refusals.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_testing::cases;

use super::plans::public;
use super::terms::{compile, quotas};
use crate::limiter::limit::WindowCounter;
use crate::limiter::rate_limiter::RateLimiter;
use crate::rule::layout::{Layout, LayoutOptions};
use crate::rule::rate::Quota;
use crate::rule::window::Window;
use crate::time::clock::{Clock, MockClock};
use crate::time::tsc::raw_to_nanos;
use crate::word::decision::{Denied, Granted};
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::verb::Take;

/// Takes part of a bucket at two times. Returns the grant, and the exact wait for `n` tokens.
fn some_taken(
    quota: Quota,
    mock: &MockClock,
    mut take: impl FnMut(u64) -> Result<Granted, Denied>,
    (start, later): (u64, u64),
    (left, n): (u64, u64),
) -> Option<(Granted, u64)> {
    mock.advance(Duration::from_nanos(start));
    take(quota.capacity()).unwrap();
    // The tokens earned meanwhile are taken as well, except for some, and a part of a token.
    mock.advance(Duration::from_nanos(later));
    let there = take(0).unwrap().remaining();
    let granted = take(there - left.min(there)).unwrap();
    let exact = take(n.min(quota.capacity())).err()?.retry_after()?;
    Some((granted, exact.as_nanos() as u64))
}

fn nanos(time: Option<Duration>) -> u64 {
    time.expect("a bucket holds as many").as_nanos() as u64
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// The time to `n` tokens is the wait of a refusal. Under a plan this holds for the next token
    /// and for a full bucket, and the times between are longer by up to two ticks.
    #[test]
    fn the_time_to_tokens_is_the_wait_of_a_refusal(
        own in quotas(),
        quota in quotas(),
        plan in any::<bool>(),
        times in (0_u64..1 << 50, (0..62_u32).prop_flat_map(|bits| 0_u64..1 << bits)),
        left in 0..3_u64,
        n in prop_oneof![Just(1), 1..5_u64, 1..1_u64 << 41],
    ) {
        let [Ok(own), Ok(quota)] = [own, quota].map(public) else { return Ok(()) };
        let quota = if plan { quota } else { own };
        let (clock, mock) = Clock::mock();
        let Ok(builder) = RateLimiter::<u64>::builder(own).max_keys(1).headroom(quota) else { return Ok(()) };
        let limiter = builder.clock(clock).build();
        let Ok(compiled) = limiter.plan(quota) else { return Ok(()) };
        let told = match plan {
            true => some_taken(quota, &mock, |n| limiter.key(&1).n(n).under(&compiled).try_acquire(), times, (left, n)),
            false => some_taken(quota, &mock, |n| limiter.try_acquire_n(&1, n), times, (left, n)),
        };
        let Some((granted, exact)) = told else { return Ok(()) };
        let n = n.min(quota.capacity());
        let room = LayoutOptions { headroom: Some(quota.numbers()), max_debt: None };
        let layout = Layout::of(own.numbers(), room).unwrap();
        let ticks = Terms::in_layout(own.numbers(), layout).ticks;
        let ends = [granted.remaining() + 1, quota.capacity()];
        let late = if plan && !ends.contains(&n) { 2 * ticks.nanos_until(0, 1) + 2 } else { 0 };
        let time = nanos(granted.time_to(n));
        prop_assert!((exact..=exact + late).contains(&time), "{time} for {exact} to {n} of {quota}, beside {own}");
        prop_assert_eq!(granted.time_to(quota.capacity()), Some(granted.reset_after()));
        prop_assert_eq!(granted.time_to(quota.capacity() + 1), None);
        prop_assert_eq!(granted.time_to(granted.remaining()), Some(Duration::ZERO));
        if granted.remaining() + 1 == n {
            prop_assert_eq!(granted.next_token(), Some(Duration::from_nanos(exact)));
        }
        // A look at the same time tells the same.
        let look = match plan {
            true => limiter.key(&1).n(n).under(&compiled).peek(),
            false => limiter.key(&1).n(n).peek(),
        };
        prop_assert_eq!((nanos(look.retry_after()), look.next_token()), (exact, granted.next_token()));
    }

    /// So is the time of a window of each kind.
    #[test]
    fn the_time_to_tokens_of_a_window_is_the_wait_of_a_refusal(
        (limit, kind) in (1..100_u64, 0..4_usize),
        steps in proptest::collection::vec((0..120_u64, 0..40_u64), 1..12),
        n in 1..100_u64,
    ) {
        let window = Window::per(limit, Duration::from_secs(60));
        let window = [window, window.utc(), window.sliding(), window.weighted()][kind];
        let (clock, mock) = Clock::mock();
        let counter = WindowCounter::builder(window).clock(clock).build();
        for (seconds, tokens) in steps {
            mock.advance(Duration::from_millis(seconds * 997));
            let granted = counter.ask().n(tokens).acquire_up_to();
            let n = n.min(limit);
            let exact = match counter.try_acquire_n(n) {
                Err(denied) => nanos(denied.retry_after()),
                Ok(_) => {
                    counter.refund(n);
                    continue;
                }
            };
            prop_assert_eq!((nanos(granted.time_to(n)), granted.time_to(limit + 1)), (exact, None), "{}", window);
            prop_assert_eq!(counter.ask().n(n).peek().retry_after(), granted.time_to(n), "{}", window);
        }
    }
}

/// In debt, and at a reading behind the stamp, the times are those of a refusal too.
#[test]
fn the_time_to_tokens_counts_a_debt_and_a_lag() {
    for asked in [(5, 3_600_000_000_000, 5), (7, 1_000_000_000, 300), (3, 1, 1 << 20)] {
        let (quota, terms) = (public(asked).unwrap(), compile(asked).unwrap());
        for (level, lag) in [(0, 0), (1, 3), (5, 100), (9, 2)] {
            let level = terms.min_level() + level * (terms.capacity - terms.min_level()) / 10;
            let reading = Reading::new(terms, 1 << 40);
            let state = State::pack(&terms, level, reading.tick + lag);
            let (outcome, _) = Take::Exactly(0).apply(state, &reading);
            let granted = Granted::new(outcome, &reading);
            for n in [1, 2, quota.capacity()].into_iter().filter(|n| *n <= quota.capacity()) {
                let (outcome, _) = Take::Exactly(n).apply(state, &reading);
                let exact = match outcome.granted {
                    true => Duration::ZERO,
                    false => Take::Exactly(n).denied(outcome, reading).retry_after().unwrap(),
                };
                assert_eq!(granted.time_to(n), Some(exact), "{n} of {quota} at {level}, {lag} ticks behind");
            }
        }
    }
}

/// By raw readings, the time is that of the refusal, to the count.
#[test]
fn the_next_token_is_told_to_the_count() {
    let (whole, part) = Clock::new().nanos_per_raw();
    for asked @ (tokens, period, burst) in
        [(5, 3_600_000_000_000, 5), (7, 10_000_000_000, 3), (1, 1_500_000_000, 1), (3, 1, 1 << 20)]
    {
        let terms = compile(asked).unwrap();
        let terms = Terms { ticks: terms.ticks.counted(whole, part), ..terms };
        for count in (0..2_000_u64).map(|step| step * 999_983) {
            let reading = Reading::new(terms, count);
            let full = State::pack(&terms, terms.capacity, reading.tick);
            let (outcome, next) = Take::Exactly(burst).apply(full, &reading);
            let told = Granted::new(outcome, &reading).next_token();
            let (outcome, _) = Take::Exactly(1).apply(next.unwrap(), &reading);
            let exact = Take::Exactly(1).denied(outcome, reading).retry_after().unwrap();
            assert_eq!(told, Some(exact), "{tokens} in {period} ns, {count}, {}", raw_to_nanos(1));
        }
    }
}
