//! Requests that have no key: all of them share one bucket of a limiter.

use crate::bucket::atomic::{Bucket, Read, Word};
use crate::bucket::engine::{At, Now};
use crate::bucket::reservation::Receipt;
use crate::keyed::keyspace::Shared;
use crate::keyed::overflow::Share;
use crate::limiter::all_of::sealed;
use crate::limiter::rate_limiter::RateLimiter;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::state::{Outcome, State};
use crate::word::terms::Reading;
use crate::word::verb::{Step, Take};

/// A request for `n` tokens without a key.
///
/// The bucket is the first of those that keys without room share, under the limiter's own quota.
pub(crate) struct NoKey<'a, K, S> {
    shared: &'a Shared<K, S>,
    n: u64,
}

impl<K, S> RateLimiter<K, S> {
    pub(crate) fn no_key(&self, n: u64) -> NoKey<'_, K, S> {
        NoKey { shared: &self.shared, n }
    }
}

impl<'a, K, S> NoKey<'a, K, S> {
    fn bucket(&self) -> &'a Bucket {
        self.shared.shares.bucket(Share::Own, 0)
    }

    fn run(&self, read: impl Read<Reading>) -> (Outcome, Reading) {
        self.shared.rules.run_shared(self.bucket(), read, Take(self.n))
    }

    /// Looks at the tokens that are there.
    pub(crate) fn peek(&self) -> Snapshot {
        let looked = Take(0).decision(self.run(Now(&self.shared.rules)));
        looked.unwrap_or_else(|denied| Granted::anyway(0, denied.remaining())).into()
    }

    pub(crate) fn refund(&self) {
        self.shared.rules.refund(self.bucket(), self.n, None);
    }
}

impl<K, S> sealed::Limit for NoKey<'_, K, S> {
    fn clock(&self) -> &Clock {
        &self.shared.rules.clock
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        let rules = &self.shared.rules;
        let read = At(rules, now);
        let step = Take(self.n);
        let (outcome, reading) = self.bucket().drive(
            |state| read.read(state),
            |state, reading: &Reading| (step.run(rules.begun(state, reading), reading).0, None),
        );
        let decision = step.decision((outcome, reading));
        if rules.may_begin(&decision) && self.bucket().state() == State::FULL {
            return Ok(());
        }
        self.shared.extras.preview(self.n, decision)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        let (outcome, reading) = self.run(Now(&self.shared.rules));
        let granted = self.shared.extras.observe(self.n, Take(self.n).decision((outcome, reading)))?;
        Ok((granted, Receipt::new(outcome, &reading, None)))
    }

    fn undo(&self, receipt: &Receipt) {
        self.shared.rules.undo(self.bucket(), receipt);
    }
}
