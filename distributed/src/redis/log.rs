//! A sliding log, for limits that must be exact in every window.

use std::hash::Hash;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::RedisResult;
use tollgate::Quota;

use super::command::invalid;
use super::script::{LOG, ScriptCall};
use super::store::{RedisStore, error_of};
use crate::key::StoreKey;
use crate::law::amount::Answer;
use crate::law::any_law::Law;
use crate::law::spec::{MAX_CREDITS, Spec};
use crate::limiter::builder::{DistributedBuilder, InvalidOption};
use crate::limiter::distributed_limiter::DistributedLimiter;
use crate::store::error::StoreError;
use crate::store::op::{Op, Store};

/// The largest limit of a [`SlidingLog`]. The script refuses a larger one of a plan, and a lease.
const MAX_LIMIT: u64 = 10_000;
/// The shortest and the longest window: a millisecond, and 100 years.
const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(100 * 366 * 86_400);

/// A limit on the calls of a key in every window, exact: the server keeps the time of each granted
/// call.
///
/// It is a [`DistributedLimiter`] with all of its verbs and options: a deadline, a policy of an
/// outage, the layer. Each request is a call of the server, as in the
/// [exact](DistributedBuilder::exact) mode.
///
/// A key takes 37 bytes for each granted call within the window, and up to 140 beyond 128 calls; a
/// bucket takes some 100 bytes in all. So the limit is at most 10,000, and [`RedisStore`] is better
/// for a limit that may refill evenly. A step back of the server's clock delays later calls by that
/// step.
///
/// A key is stored behind the prefix of the store, `:log:` and the window in microseconds. So logs
/// of another name or of another window share nothing, and a log keeps its calls when its limit
/// changes. A plan, or a later quota, is a log of `burst` calls in the time that earns the burst.
///
/// `retry_after` is exact if a call of the server refused the request and granted no other one.
/// Else it may be that of a bucket that refills evenly, as `reset_after` always is. A request of
/// more calls than the one before it may be refused by that for up to a second.
///
/// The [documentation of the crate](crate#a-limit-in-every-window) has a program.
#[derive(Clone, Debug)]
pub struct SlidingLog {
    store: RedisStore,
}

impl SlidingLog {
    /// Returns the logs on the server of a store: the store of a limiter in the exact mode.
    #[must_use]
    pub fn new(store: &RedisStore) -> SlidingLog {
        SlidingLog { store: store.clone() }
    }

    /// Returns the options of a limiter that grants a key at most `limit` calls in any `window`.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`] if the limit is 0 or over 10,000, or the window is under a millisecond or
    /// over 100 years.
    pub fn builder<K>(
        store: &RedisStore,
        limit: u64,
        window: Duration,
    ) -> Result<DistributedBuilder<K, SlidingLog>, InvalidOption>
    where
        K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    {
        let quota = match Quota::try_per(limit, window) {
            _ if !(1..=MAX_LIMIT).contains(&limit) => return Err(InvalidOption::Limit(limit, MAX_LIMIT)),
            Ok(quota) if WINDOWS.contains(&window) => quota,
            _ => return Err(InvalidOption::Time("window", window, *WINDOWS.start(), *WINDOWS.end())),
        };
        Ok(DistributedLimiter::builder(quota, SlidingLog::new(store)).exact())
    }

    fn call(&self, group: &[Op<'_>]) -> ScriptCall {
        let (op, spec) = (&group[0], spec_of(&group[0]));
        let (quota, amount) = (spec.quota(), op.amount);
        let window = quota.period().as_nanos() * u128::from(quota.capacity());
        let window_us = window.div_ceil(u128::from(quota.tokens()) * 1_000).to_string();
        let key = [self.store.prefix(), b":log:", window_us.as_bytes(), b":", op.key].concat();
        let mut command = LOG.command(1);
        command.arg(&key).arg(quota.capacity()).arg(window_us).arg(spec.debt());
        command.arg(amount.min).arg(amount.max).arg(amount.spent);
        ScriptCall { key, script: &LOG, command, length: 4 }
    }
}

/// Returns the quota of a call: the limiter of a log has no other rule.
fn spec_of<'o>(op: &'o Op<'_>) -> &'o Spec {
    match &op.law {
        Law::Bucket(spec) => spec,
        Law::Count(_) => panic!("a log has a quota"),
    }
}

impl Store for SlidingLog {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        // The probe of a limiter has no name, and a bucket of its own.
        if ops.iter().all(|op| op.key.starts_with(b":")) {
            return self.store.acquire(ops).await;
        }
        let call = |group: &[Op<'_>]| self.call(group);
        error_of(self.store.send(ops.chunks_mut(1), call, read).await).map_or(Ok(()), Err)
    }
}

/// Writes the answer of a call as that of a bucket: of a level from which the bucket earns the next
/// token at the time at which the log has room for it.
///
/// # Errors
///
/// A number is out of the range of the call.
fn read(numbers: &[i64], ops: &mut [Op<'_>]) -> RedisResult<()> {
    let ([op], &[granted, left, wait_us, now_us]) = (ops, numbers) else {
        return Err(invalid(format!("{numbers:?}")));
    };
    let (spec, amount) = (*spec_of(op), op.amount);
    let limit = spec.quota().capacity() as i64;
    let grants = 0..=amount.max.max(0);
    // A log may have the calls of a higher limit, and a debt of them.
    let (lefts, times) = (-2 * MAX_LIMIT as i64..=limit, 0..=MAX_CREDITS as i64);
    let is_sound = grants.contains(&granted) && lefts.contains(&left) && times.contains(&wait_us);
    if !is_sound || !times.contains(&now_us) || now_us == 0 {
        return Err(invalid(format!("{numbers:?} to {amount:?}")));
    }
    let per_token = i128::from(spec.per_token());
    let ticks = wait_us.unsigned_abs().div_ceil(spec.tick_us());
    let earned = i128::from(ticks) * i128::from(spec.per_tick());
    let credits = if granted == 0 && amount.max > 0 {
        i128::from(amount.min) * per_token - earned
    } else {
        let level = i128::from(left) * per_token;
        (level + per_token - earned).clamp(level, level + per_token - 1)
    };
    let credits = credits.clamp(-i128::from(spec.floor()), i128::from(spec.capacity())) as i64;
    let granted = if amount.max < 0 { amount.max } else { granted };
    op.answer = Answer { granted, credits, now_us: now_us.unsigned_abs(), ..Answer::default() };
    Ok(())
}
