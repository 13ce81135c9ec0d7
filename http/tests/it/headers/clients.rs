// promise: headers
//! Clients that go by the headers.

use super::*;

/// Spends tokens as a client that goes by `r` and `t` alone. It sends at most `r` requests within
/// `t` seconds, evenly or at once, and none before `t` where `r` is 0. It reads them anew in each
/// response.
fn go_by_the_header(
    mut take: impl FnMut(u64) -> Result<Granted, Denied>,
    mock: &MockClock,
    quota: Quota,
    late: u64,
    (lead, left, evenly): (u64, u64, u32),
) -> Result<(), TestCaseError> {
    let policy = Policy::new("default", quota).unwrap();
    mock.advance(Duration::from_nanos(lead));
    let mut headers = told(policy.fields(&take(quota.capacity().saturating_sub(left).max(1))));
    let mut now = lead;
    for step in 0..8 {
        let [r, t] = ["r", "t"].map(|name| number(&headers, "ratelimit", name));
        let wait = if r == 0 {
            if let Err(denied) = take(1) {
                let wait = denied.retry_after().unwrap().as_nanos();
                let [exact, latest] = [wait, wait + u128::from(late)]
                    .map(|nanos| nanos.div_ceil(1_000_000_000).clamp(1, 1 << 31) as u64);
                prop_assert!((exact..=latest).contains(&t), "{t} of {quota} {denied:?}");
            } else {
                return Err(TestCaseError::fail(format!("r=0, and a token of {quota}")));
            }
            t.saturating_mul(1_000_000_000)
        } else if evenly >> step & 1 == 0 {
            t.saturating_mul(1_000_000_000) / r
        } else {
            0
        };
        now = now.saturating_add(wait);
        if t >= 1 << 31 || now >= 1 << 61 {
            // A wait that was cut to the longest, or the end of the clock.
            return Ok(());
        }
        mock.advance(Duration::from_nanos(wait));
        match take(1) {
            Ok(granted) => headers = told(policy.fields(&Ok(granted))),
            Err(denied) => return Err(TestCaseError::fail(format!("r={r};t={t} of {quota}: {denied}"))),
        }
    }
    Ok(())
}

fn clients() -> impl Strategy<Value = (u64, u64, u32)> {
    (0_u64..1 << 50, prop_oneof![Just(0), 0_u64..4], any::<u32>())
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// Alone on its key, a client that goes by the header is not refused.
    #[test]
    fn a_client_that_goes_by_the_header_is_not_refused(quota in quotas(), client in clients()) {
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota).clock(clock).build();
        go_by_the_header(|n| bucket.try_acquire_n(n), &mock, quota, 0, client)?;
    }

    /// The same holds under a plan, and after a change of the quota.
    #[test]
    fn nor_under_a_plan_or_another_quota(own in quotas(), quota in quotas(), client in clients(), plan in any::<bool>()) {
        let (clock, mock) = Clock::mock();
        let Ok(builder) = RateLimiter::<u64>::builder(own).max_keys(1).headroom(quota) else { return Ok(()) };
        let limiter = builder.clock(clock).build();
        if plan {
            let Ok(plan) = limiter.plan(quota) else { return Ok(()) };
            // Under a plan, a bucket fills in 128 ticks or more.
            let fill = u128::from(quota.capacity()) * quota.period().as_nanos() / u128::from(quota.tokens());
            let two_ticks = (fill / 64) as u64 + 3;
            go_by_the_header(|n| limiter.key(&1).n(n).under(&plan).try_acquire(), &mock, quota, two_ticks, client)?;
        } else if limiter.set_rule(quota).is_ok() {
            go_by_the_header(|n| limiter.try_acquire_n(&1, n), &mock, quota, 0, client)?;
        }
    }
}

proptest! {
    #![proptest_config(cases(200_000))]

    /// Alone on its key, a client that waits for `Retry-After` is granted.
    #[test]
    fn after_retry_after_the_next_one_passes(quota in quotas(), n in 1_u64..1_000, lead in 0_u64..1 << 50) {
        let policy = Policy::new("default", quota).unwrap();
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_nanos(lead));
        let bucket = TokenBucket::builder(quota).clock(clock).build();
        let n = n.min(quota.capacity());
        let _ = bucket.try_acquire_n(quota.capacity()).unwrap();
        mock.advance(Duration::from_nanos(lead / 1_000));
        if let Err(denied) = bucket.try_acquire_n(n) {
            let wait = told(policy.fields(&Err(denied)))["retry-after"].to_str().unwrap().parse().unwrap();
            if wait == 1 << 31 {
                // The wait was cut to the longest.
                return Ok(());
            }
            mock.advance(Duration::from_secs(wait));
            prop_assert!(bucket.try_acquire_n(n).is_ok(), "{n} of {quota} after {wait} s");
        }
    }
}
