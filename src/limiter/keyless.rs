//! Requests that have no key: all of them share one bucket of a limiter.

use crate::bucket::atomic::{Bucket, BucketRef, Read};
use crate::bucket::engine::{At, Now};
use crate::bucket::reservation::Receipt;
use crate::keyed::overflow::OverflowSet;
use crate::limiter::all_of::sealed;
use crate::limiter::inner::Inner;
use crate::limiter::rate_limiter::RateLimiter;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::state::{Outcome, State};
use crate::word::terms::Reading;
use crate::word::verb::Take;

/// A request for `n` tokens without a key.
///
/// Its bucket is the first overflow bucket under the limiter's own quota.
pub(crate) struct NoKey<'a, K, S> {
    inner: &'a Inner<K, S>,
    n: u64,
}

impl<K, S> RateLimiter<K, S> {
    pub(crate) fn no_key(&self, n: u64) -> NoKey<'_, K, S> {
        NoKey { inner: &self.inner, n }
    }
}

impl<'a, K, S> NoKey<'a, K, S> {
    fn bucket(&self) -> &'a Bucket {
        self.inner.keyspace.overflow.bucket(OverflowSet::Own, 0)
    }

    fn run(&self, read: impl Read<Reading>) -> (Outcome, Reading) {
        self.inner.keyspace.engine.run_overflow(self.bucket(), read, Take::Exactly(self.n))
    }

    /// Returns the tokens that are there, and takes none.
    pub(crate) fn peek(&self) -> Snapshot {
        let looked = Take::Exactly(0).decision(self.run(Now(&self.inner.keyspace.engine)));
        looked.unwrap_or_else(|denied| Granted::anyway(0, denied.remaining())).into()
    }

    pub(crate) fn refund(&self) {
        self.inner.keyspace.engine.refund(self.bucket(), self.n, None);
    }
}

impl<K, S> sealed::Limit for NoKey<'_, K, S> {
    fn clock(&self) -> &Clock {
        &self.inner.keyspace.engine.clock
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        let engine = &self.inner.keyspace.engine;
        let step = Take::Exactly(self.n);
        let decision = step.decision(self.bucket().update(At(engine, now), |state, reading: &Reading| {
            (step.apply(engine.initialized(state, reading), reading).0, None)
        }));
        if engine.may_begin(&decision) && self.bucket().state() == State::FULL {
            return Ok(());
        }
        self.inner.hook.preview(self.n, decision)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        let (outcome, reading) = self.run(Now(&self.inner.keyspace.engine));
        let decision = Take::Exactly(self.n).decision((outcome, reading));
        let granted = self.inner.hook.observe(self.n, decision)?;
        Ok((granted, Receipt::new(outcome, &reading, None)))
    }

    fn undo(&self, receipt: &Receipt) {
        self.inner.keyspace.engine.undo(self.bucket(), receipt);
    }
}
