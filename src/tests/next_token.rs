// promise: headers
//! The wait for the next token after a decision that left none, compared with the wait of a
//! refusal.

use std::time::Duration;

use proptest::prelude::*;

use super::plans::public;
use super::terms::{compile, quotas};
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::layout::{Layout, LayoutOptions};
use crate::quota::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::time::tsc::raw_to_nanos;
use crate::word::decision::{Denied, Granted};
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::verb::Take;

/// Takes most of a bucket at two times, so that no whole token is left. Returns two waits for the
/// next token: that of the headers, and that of a refusal.
fn next_token(
    quota: Quota,
    mock: &MockClock,
    mut take: impl FnMut(u64) -> Result<Granted, Denied>,
    (start, later): (u64, u64),
) -> Option<(u64, u64)> {
    mock.advance(Duration::from_nanos(start));
    let burst = quota.capacity();
    take(burst).unwrap();
    // The tokens earned meanwhile are taken as well, except for a part of a token.
    mock.advance(Duration::from_nanos(later));
    let left = take(0).unwrap().remaining();
    let granted = take(left).unwrap();
    let exact = take(1).err()?.retry_after()?;
    Some((granted.next_token(quota.numbers()).as_nanos() as u64, exact.as_nanos() as u64))
}

proptest! {
    #![proptest_config(super::cases(20_000))]

    /// The wait for the next token is that of the refusal. Under a plan it is longer by up to two
    /// ticks.
    #[test]
    fn the_next_token_is_told_to_the_nanosecond(
        own in quotas(),
        quota in quotas(),
        plan in any::<bool>(),
        times in (0_u64..1 << 50, (0..62_u32).prop_flat_map(|bits| 0_u64..1 << bits)),
    ) {
        let [Ok(own), Ok(quota)] = [own, quota].map(public) else { return Ok(()) };
        let quota = if plan { quota } else { own };
        let (clock, mock) = Clock::mock();
        let Ok(builder) = RateLimiter::<u64>::builder(own).max_keys(1).headroom(quota) else { return Ok(()) };
        let limiter = builder.clock(clock).build();
        let Ok(compiled) = limiter.plan(quota) else { return Ok(()) };
        let told = match plan {
            true => next_token(quota, &mock, |n| limiter.try_acquire_as(&1, n, &compiled), times),
            false => next_token(quota, &mock, |n| limiter.try_acquire_n(&1, n), times),
        };
        let Some((told, exact)) = told else { return Ok(()) };
        let room = LayoutOptions { headroom: Some(quota.numbers()), max_debt: None };
        let layout = Layout::of(own.numbers(), room).unwrap();
        let ticks = Terms::in_layout(own.numbers(), layout).ticks;
        let late = if plan { 2 * ticks.nanos_until(0, 1) + 2 } else { 1 };
        prop_assert!((exact - 1..=exact + late).contains(&told), "{told} for {exact} of {quota}, beside {own}");
    }
}

/// By raw readings, the wait is that of the refusal, or longer by up to two raw units.
#[test]
fn the_next_token_is_told_to_the_count() {
    let (whole, part) = Clock::new().nanos_per_raw();
    for asked @ (tokens, period, burst) in
        [(5, 3_600_000_000_000, 5), (7, 10_000_000_000, 3), (1, 1_500_000_000, 1), (3, 1, 1 << 20)]
    {
        let quota = public(asked).unwrap();
        let terms = compile(asked).unwrap();
        let terms = Terms { ticks: terms.ticks.counted(whole, part), ..terms };
        for count in (0..2_000_u64).map(|step| step * 999_983) {
            let reading = Reading::new(terms, count);
            let full = State::pack(&terms, terms.capacity, reading.tick);
            let (outcome, next) = Take::Exactly(burst).apply(full, &reading);
            let told = Granted::new(outcome, &reading).next_token(quota.numbers());
            let (outcome, _) = Take::Exactly(1).apply(next.unwrap(), &reading);
            let exact = Take::Exactly(1).denied(outcome, reading).retry_after().unwrap();
            let most = exact + Duration::from_nanos(2 * raw_to_nanos(1));
            assert!(
                (exact..=most).contains(&told),
                "{told:?} for {exact:?} of {tokens} in {period} ns, {count}"
            );
        }
    }
}
