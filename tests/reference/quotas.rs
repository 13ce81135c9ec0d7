//! Quotas by their numbers.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use tollgate::Quota;
use tollgate_testing::quota_text;
use tollgate_testing::reference::steps::nanos;
use tollgate_testing::reference::{Asked, Unit};

/// Returns the numbers of a quota.
pub(crate) fn asked(quota: Quota) -> Asked {
    (quota.tokens(), nanos(quota.period()), quota.capacity())
}

/// Returns the quota, if there is one. It must be refused exactly when a documented bound is broken
/// or the rules of the design find no layout. They may find none only above 500 tokens a
/// nanosecond.
pub(crate) fn quota(asked @ (tokens, nanos, burst): Asked) -> Option<Quota> {
    let quota = quota_text(asked).parse().ok();
    let (rate, period) = (u128::from(tokens), u128::from(nanos));
    let bounded = (tokens >= 1 && (1..=1 << 62).contains(&nanos) && (1..=1 << 40).contains(&burst))
        && rate <= 1_000 * period
        && u128::from(burst) * period <= rate << 62;
    let fits = bounded && Unit::choose(tokens, nanos, burst).is_some();
    assert_eq!(quota.is_some(), fits, "{tokens} every {nanos} ns, burst {burst}");
    assert!(fits || !bounded || rate > 500 * period, "{tokens} every {nanos} ns, burst {burst}");
    quota
}

/// Returns the quota, if there is one that the reference counts in 128 bits.
pub(crate) fn counted(asked: Asked) -> Option<Quota> {
    quota(asked).filter(|quota| quota.tokens() < 1 << 44)
}
