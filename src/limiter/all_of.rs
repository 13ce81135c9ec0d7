//! Several limits, all or nothing.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::bucket::engine::At;
use crate::bucket::receipt::Receipt;
use crate::keyed::key::ToKey;
use crate::limiter::inner::CallOptions;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::token_bucket::TokenBucket;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted};
use crate::word::verb::Take;

/// So many tokens of one limit, for [`all_of`]: from [`TokenBucket::n`] or [`RateLimiter::key`](crate::RateLimiter::key).
pub trait Limit: sealed::Limit {}

impl<T: sealed::Limit + ?Sized> Limit for T {}

/// Limits for [`all_of`]: tuples of up to eight, arrays and slices of up to 64 limits, or of `&dyn Limit`.
pub trait Limits: sealed::Limits {}

impl<T: sealed::Limits + ?Sized> Limits for T {}

pub(crate) mod sealed {
    use super::*;

    pub trait Limit {
        /// The clock it decides on.
        fn clock(&self) -> &Clock;
        /// What a take would come to, at a reading.
        fn look(&self, now: Moment) -> Result<(), Denied>;
        fn take(&self) -> Result<(Granted, Receipt), Denied>;
        fn undo(&self, receipt: &Receipt);
    }

    pub trait Limits {
        fn get(&self, index: usize) -> Option<&dyn Limit>;
    }
}

/// Takes tokens of several limits, all or none.
///
/// First each is looked at, from one reading of the clock; if any refuses, nothing is written. Then they are
/// taken in order. If one is lost to somebody else meanwhile, those before are undone: each gets back what it would
/// still have, so nothing is minted, and at most what came in that time is lost; nothing, if nobody else took. (All of it
/// is lost if another caller has reserved meanwhile and waits: that time was promised on top of it. All of it is lost as well
/// where a key of a limiter with plans was used meanwhile: the tokens would spill at another level.)
/// For that moment, somebody else may be refused by what is held and then given back. Nothing is allocated.
///
/// A look does not see that a new key finds no room, nor that one which does not start full has too
/// few tokens yet: then the others are taken and undone. A limit that is named twice is taken
/// twice: say the sum instead, for a `retry_after` that is right.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{Quota, RateLimiter, TokenBucket, all_of};
///
/// let service = TokenBucket::new(Quota::per_second(10_000));
/// let per_ip = RateLimiter::<IpAddr>::new(Quota::per_second(50));
/// let per_user = RateLimiter::<String>::new(Quota::per_hour(100));
///
/// let (ip, cost): (IpAddr, u64) = ("192.0.2.7".parse()?, 60);
/// let all = all_of((service.n(1), per_ip.key(&ip), per_user.key("ada").n(cost)));
/// assert_eq!(all.try_acquire()?.remaining(), 40); // of the tightest
///
/// let denied = all.try_acquire().unwrap_err();
/// assert_eq!(denied.which(), 2); // the user's
/// assert_eq!(per_ip.peek(&ip).remaining(), 49); // nothing was taken
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn all_of<L: Limits>(limits: L) -> AllOf<L> {
    AllOf { limits }
}

/// Limits of one call: each takes a place on the stack.
const MOST: usize = 64;

/// Several limits, from [`all_of`].
#[derive(Clone, Copy)]
pub struct AllOf<L> {
    limits: L,
}

impl<L: Limits> AllOf<L> {
    /// Takes the tokens of all, or of none. The answer is that of the limit that has the least left; no limits at all
    /// grant everything.
    ///
    /// # Errors
    ///
    /// [`AllDenied`] says which refused, the one that takes longest, and for how long.
    pub fn try_acquire(&self) -> Result<Granted, AllDenied> {
        take_all(&self.limits).map(|(granted, _)| granted)
    }
}

/// Takes of all or of none. Tells what the one granted that has the least left, and which it is.
pub(crate) fn take_all<L: sealed::Limits + ?Sized>(limits: &L) -> Result<(Granted, usize), AllDenied> {
    look(limits)?;
    take_from(limits, 0)
}

/// Looks at each limit, at one reading.
fn look<L: sealed::Limits + ?Sized>(limits: &L) -> Result<(), AllDenied> {
    let Some(first) = limits.get(0) else { return Ok(()) };
    if limits.get(MOST).is_some() {
        return Err(AllDenied { which: MOST, denied: Denied::too_many_limits() });
    }
    let now = first.clock().moment();
    let mut slowest_fill: Option<AllDenied> = None;
    for (which, limit) in (0..).map_while(|index| Some((index, limits.get(index)?))) {
        let same = which == 0 || limit.clock().is_same(first.clock());
        let now = if same { now } else { limit.clock().moment() };
        if let Err(denied) = limit.look(now) {
            let denied = AllDenied { which, denied };
            if slowest_fill.is_none_or(|slowest_fill| denied.wait() > slowest_fill.wait()) {
                slowest_fill = Some(denied);
            }
        }
    }
    slowest_fill.map_or(Ok(()), Err)
}

/// Takes this limit and those after it. One call deep for each, so that receipts need no room of their own.
fn take_from<L: sealed::Limits + ?Sized>(limits: &L, which: usize) -> Result<(Granted, usize), AllDenied> {
    let Some(limit) = limits.get(which) else { return Ok((Granted::anyway(0, u64::MAX), which)) };
    let (granted, receipt) = limit.take().map_err(|denied| AllDenied { which, denied })?;
    match take_from(limits, which + 1) {
        Ok(others) if others.0.remaining() < granted.remaining() => Ok(others),
        Ok(_) => Ok((granted, which)),
        Err(denied) => {
            limit.undo(&receipt);
            Err(denied)
        }
    }
}

impl<L> fmt::Debug for AllOf<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllOf").finish_non_exhaustive()
    }
}

/// One of several limits refused, and nothing was taken of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct AllDenied {
    which: usize,
    denied: Denied,
}

impl AllDenied {
    /// The limit that refused, by its place from 0; of several, the one that takes longest. (Of one that was lost to
    /// somebody else meanwhile, that one.)
    #[must_use]
    pub fn which(&self) -> usize {
        self.which
    }

    /// What it said.
    pub fn denied(&self) -> Denied {
        self.denied
    }

    /// How long until all of them may grant, if nobody takes tokens in between; `None` if they never will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.denied.retry_after()
    }

    /// Never is the longest.
    fn wait(&self) -> Duration {
        self.retry_after().unwrap_or(Duration::MAX)
    }
}

impl Error for AllDenied {}

impl fmt::Display for AllDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}: {}", self.which, self.denied)
    }
}

/// Tokens of one bucket, for [`all_of`]; see [`TokenBucket::n`].
#[derive(Clone, Copy, Debug)]
pub struct BucketLimit<'a> {
    bucket: &'a TokenBucket,
    n: u64,
}

impl TokenBucket {
    /// `n` tokens of this bucket, for [`all_of`].
    #[must_use]
    pub fn n(&self, n: u64) -> BucketLimit<'_> {
        BucketLimit { bucket: self, n }
    }
}

impl sealed::Limit for BucketLimit<'_> {
    fn clock(&self) -> &Clock {
        &self.bucket.engine().clock
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        let TokenBucket { extras, .. } = self.bucket;
        let step = Take::Exactly(self.n);
        let done = self.bucket.look(At(self.bucket.engine(), now), step);
        let decision = step.decision((done.outcome, done.reading));
        extras.preview(self.n, decision)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        self.bucket.receive(self.n, Take::Exactly(self.n))
    }

    fn undo(&self, receipt: &Receipt) {
        self.bucket.undo(receipt);
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> sealed::Limit for KeyLimit<'_, K, Q, S> {
    fn clock(&self) -> &Clock {
        &self.inner().keyspace.engine.clock
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        let inner = self.inner();
        let pin = inner.keyspace.store.pin();
        let ask = CallOptions { now: Some(now), ..self.ask() };
        let decision = inner.look_at(&pin, self.key, ask, Take::Exactly(self.n));
        if inner.keyspace.engine.may_begin(&decision) && !inner.holds(&pin, self.key) {
            return Ok(());
        }
        inner.extras.preview(self.n, decision)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        let inner = self.inner();
        inner.receive(&inner.keyspace.store.pin(), self.key, self.ask(), Take::Exactly(self.n))
    }

    fn undo(&self, receipt: &Receipt) {
        let inner = self.inner();
        inner.undo(&inner.keyspace.store.pin(), self.key, receipt);
    }
}

impl<T: sealed::Limit + ?Sized> sealed::Limit for &T {
    fn clock(&self) -> &Clock {
        (**self).clock()
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        (**self).look(now)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        (**self).take()
    }

    fn undo(&self, receipt: &Receipt) {
        (**self).undo(receipt);
    }
}

impl<T: sealed::Limit> sealed::Limits for [T] {
    fn get(&self, index: usize) -> Option<&dyn sealed::Limit> {
        self.get(index).map(|limit| limit as &dyn sealed::Limit)
    }
}

impl<T: sealed::Limit, const N: usize> sealed::Limits for [T; N] {
    fn get(&self, index: usize) -> Option<&dyn sealed::Limit> {
        sealed::Limits::get(self.as_slice(), index)
    }
}

impl<T: sealed::Limits + ?Sized> sealed::Limits for &T {
    fn get(&self, index: usize) -> Option<&dyn sealed::Limit> {
        (**self).get(index)
    }
}

macro_rules! tuples {
    ($($limit:ident $index:tt)*) => { tuples!(@ [] $($limit $index)*); };
    (@ [$($done:ident $at:tt)*] $limit:ident $index:tt $($rest:tt)*) => {
        impl<$($done: sealed::Limit,)* $limit: sealed::Limit> sealed::Limits for ($($done,)* $limit,) {
            fn get(&self, index: usize) -> Option<&dyn sealed::Limit> {
                match index {
                    $($at => Some(&self.$at),)*
                    $index => Some(&self.$index),
                    _ => None,
                }
            }
        }
        tuples!(@ [$($done $at)* $limit $index] $($rest)*);
    };
    (@ [$($done:tt)*]) => {};
}

tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
