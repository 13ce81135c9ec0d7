//! Requests that have no key: all of them share one bucket of a limiter.

use std::hash::Hash;
use std::task::Waker;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::line::word_bank::{Entered, Wish};
use crate::bucket::receipt::{Receipt, Settle};
use crate::keyed::lines::LineId;
use crate::keyed::overflow::OverflowSet;
use crate::limiter::all_of::{Internal, Limit};
use crate::limiter::inner::Inner;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::waiting::{LineTicket, Promise};
use crate::time::clock::{Clock, Moment};
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Take};

/// The shared bucket.
const ORIGIN: Origin = Origin::Overflow(0);

/// The shared bucket is in no store.
const NEVER_SEALED: &str = "an overflow bucket is never sealed";

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

impl<'a, K: Hash + Eq, S> NoKey<'a, K, S> {
    fn bucket(&self) -> &'a Bucket {
        self.inner.keyspace.sweep_if_due();
        self.inner.keyspace.parts().overflow.bucket(OverflowSet::Own, 0)
    }

    fn engine(&self) -> &'a Engine {
        &self.inner.keyspace.engine
    }

    /// Returns the tokens that are there, and takes none.
    pub(crate) fn peek(&self) -> Snapshot {
        let engine = self.engine();
        let call = Call::from(Take::Exactly(0));
        let (_, done) = engine.look(self.bucket(), Now(engine), call);
        call.granted(done.outcome, &done.reading).into()
    }

    pub(crate) fn settle(&self, settle: Settle<'_>) {
        let (keyspace, bucket) = (&self.inner.keyspace, self.bucket());
        keyspace.settle_found(&keyspace.store.pin(), (bucket, || Some(ORIGIN)), None, settle);
    }

    pub(crate) fn refund(&self) {
        self.settle(Settle::Refund(self.n));
    }

    /// Takes the tokens on credit if need be.
    pub(crate) fn charge(&self) {
        // A bucket that was never charged has no level yet.
        let _ = self.receive(Take::Touch);
        self.settle(Settle::Charge(self.n));
    }

    fn receive(&self, take: Take) -> Result<(Granted, Receipt), Denied> {
        let (engine, call) = (self.engine(), Call::from(take));
        let done = engine.charge(self.bucket(), Some(State::FULL), Now(engine), call);
        let Done { outcome, reading, .. } = done.expect(NEVER_SEALED);
        let receipt = Receipt::new(outcome, &reading, None);
        let (hook, decision) = (&self.inner.hook, call.decision(outcome, reading));
        let granted = hook.observe_or(take.tokens(), decision, || self.undo(&receipt))?;
        Ok((granted, receipt))
    }
}

impl<K: Hash + Eq, S> NoKey<'_, K, S> {
    /// Takes the tokens now, or joins the line of the bucket if they come within `max_wait`
    /// nanoseconds.
    pub(crate) fn join(&self, max_wait: u64, max_waiting: usize, waker: &Waker) -> Result<Promise, Denied> {
        let NoKey { inner, n } = *self;
        let (engine, call) = (self.engine(), Call::from(Take::Exactly(n)));
        let done = engine.charge(self.bucket(), Some(State::FULL), Now(engine), call);
        let Done { outcome, reading, .. } = done.expect(NEVER_SEALED);
        let line = LineId { origin: ORIGIN, removals: 0, plan: None };
        let decision = match call.decision(outcome, reading) {
            Ok(granted) => {
                let receipt = Receipt::new(outcome, &reading, None).at(line.origin);
                let granted = inner.hook.observe_or(n, Ok(granted), || self.undo(&receipt))?;
                return Ok(Promise::Granted(granted, receipt));
            }
            Err(denied) if denied.reason() == Reason::Empty && max_wait > 0 && !inner.hook.is_shadow() => {
                let wish = Wish { n, max_wait, max_waiting: max_waiting.min(inner.max_waiting), waker };
                match inner.keyspace.join_line(&inner.keyspace.store.pin(), line, &wish) {
                    Ok(Entered::Waits(waits)) => return Ok(Promise::Waits(LineTicket { line, waits, n })),
                    Ok(Entered::Granted(granted)) => Ok(granted),
                    Ok(Entered::Lost) => unreachable!("{NEVER_SEALED}"),
                    Err(denied) => Err(denied),
                }
            }
            denied => denied,
        };
        inner.hook.observe(n, decision).map(Promise::granted)
    }
}

impl<K: Hash + Eq, S> Limit for NoKey<'_, K, S> {
    fn clock(&self) -> &Clock {
        &self.engine().clock
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        let (engine, call) = (self.engine(), Call::from(Take::Exactly(self.n)));
        let (charged, done) = engine.look(self.bucket(), At(engine, now), call);
        let decision = call.decision(done.outcome, done.reading);
        if engine.may_begin(&decision) && !charged {
            return Ok(());
        }
        self.inner.hook.preview(self.n, decision)
    }

    fn take(&self, _: Internal) -> Result<(Granted, Receipt), Denied> {
        self.receive(Take::Exactly(self.n))
    }

    fn undo(&self, receipt: &Receipt) {
        self.settle(Settle::Undo(receipt));
    }
}
