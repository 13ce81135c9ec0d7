//! Requests that have no key: all of them share one bucket of a limiter.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::line::caller_line::LineTurn;
use crate::bucket::line::word_bank::{Entered, Wish};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::lines::LineId;
use crate::limiter::asked::{Asked, Patience, Target};
use crate::limiter::hook::DecisionHook;
use crate::limiter::inner::Inner;
use crate::limiter::options::CallOptions;
use crate::limiter::rule::Rule;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::verbs::{Verb, decision};
use crate::time::clock::Moment;
use crate::time::jitter::Jitter;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Reserve, Take};

/// The origin of the line of the shared bucket.
const LINE: Origin = Origin::NoKey;

/// The shared bucket is in no store.
const NEVER_SEALED: &str = "the shared bucket is never sealed";

/// The one bucket of the requests without a key, from
/// [`RateLimiter::shared`](crate::RateLimiter::shared).
///
/// It is under the limiter's own rule, and no key shares it. A request under a plan is refused,
/// with [`Reason::ForeignPlan`].
pub struct Shared<'a, K, R, S> {
    pub(super) inner: &'a Arc<Inner<K, S>>,
    pub(super) rule: PhantomData<R>,
}

impl<'a, K: Hash + Eq, R, S> Shared<'a, K, R, S> {
    fn bucket(self) -> &'a Bucket {
        self.inner.keyspace.sweep_if_due();
        self.inner.keyspace.parts().overflow.no_key()
    }

    fn settle(self, settle: Settle<'_>) {
        let (keyspace, bucket) = (&self.inner.keyspace, self.bucket());
        keyspace.settle_found(&keyspace.store.pin(), (bucket, || Some(LINE)), None, settle);
    }

    /// Returns the call of a take, and the outcome that the `tried` one would have.
    fn seen(self, take: Take, tried: Take, options: CallOptions<'_>) -> Result<(Call, (bool, Done)), Denied> {
        let (engine, tried) = (&self.inner.keyspace.engine, Call::from(tried));
        if options.plan.is_some() {
            return Err(Denied::foreign_plan());
        }
        let done = match options.now {
            None => engine.look(self.bucket(), Now(engine), tried),
            Some(now) => engine.look(self.bucket(), At(engine, now), tried),
        };
        Ok((take.into(), done))
    }

    /// Shows the decision on a take to the hook, and returns a receipt for the take.
    fn received(self, call: Call, done: Result<Done, Denied>) -> Result<(Granted, Receipt), Denied> {
        let hook = &self.inner.hook;
        let Done { outcome, reading, .. } = match done {
            Ok(done) => done,
            Err(denied) => {
                let granted = hook.observe(call.take.n(), Err(denied))?;
                return Ok((granted, Receipt::void(self.inner.keyspace.engine.clock.now())));
            }
        };
        let receipt = match outcome.granted {
            true => Receipt::of(call, outcome, &reading).at(Origin::NoKey),
            false => Receipt::void(Moment(reading.nanos())),
        };
        let decision = call.decision(outcome, reading);
        let undo = || self.settle(Settle::Undo(&receipt));
        let granted = hook.observe_or(call.take.n(), decision, undo)?;
        Ok((granted, receipt))
    }
}

impl<'a, K, R, S> Target<'a> for Shared<'a, K, R, S>
where
    K: Hash + Eq + Send + Sync,
    S: Send + Sync,
{
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        verb.decided(&self.inner.hook, self.run(verb.take(), options))
    }

    fn run(self, take: Take, options: CallOptions<'_>) -> (Call, Result<Done, Denied>) {
        let (engine, bucket, call) = (&self.inner.keyspace.engine, self.bucket(), Call::from(take));
        if options.plan.is_some() {
            return (call, Err(Denied::foreign_plan()));
        }
        let done = match options.now {
            None => engine.charge(bucket, Some(State::FULL), Now(engine), call),
            Some(now) => engine.charge(bucket, Some(State::FULL), At(engine, now), call),
        };
        (call, Ok(done.expect(NEVER_SEALED)))
    }

    fn peek(self, take: Take, options: CallOptions<'_>) -> Snapshot {
        match self.seen(take, Take::Exactly(0), options) {
            Ok((call, (_, Done { outcome, reading, .. }))) => call.snapshot(outcome, reading),
            Err(_) => Snapshot::new(Granted::anyway(0, 0), None),
        }
    }

    fn look(self, take: Take, options: CallOptions<'_>) -> Result<(), Denied> {
        let (charged, decision) = match self.seen(take, take, options) {
            Ok((call, (charged, done))) => (charged, call.decision(done.outcome, done.reading)),
            Err(denied) => (true, Err(denied)),
        };
        if self.inner.keyspace.engine.may_begin(&decision) && !charged {
            return Ok(());
        }
        self.inner.hook.preview(take.n(), decision)
    }

    fn receive(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        let (call, done) = self.run(take, options);
        self.received(call, done)
    }

    fn undo(self, receipt: &Receipt) {
        self.settle(Settle::Undo(receipt));
    }

    fn refund(self, n: u64, options: CallOptions<'_>) {
        if options.plan.is_none() {
            self.settle(Settle::Refund(n));
        }
    }

    fn hold(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        self.receive(take, options)
    }

    fn reserve(self, wanted: Reserve, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        let Reserve { n, keep, max_wait } = wanted;
        let (call, done) = self.run(Take::now(n, keep), options);
        let waits = decision(call, done).is_err_and(|denied| denied.reason() == Reason::Empty);
        if !waits || max_wait == 0 || self.inner.hook.is_shadow() {
            return self.received(call, done);
        }
        let keyspace = &self.inner.keyspace;
        let line = LineId { origin: LINE, removals: 0, plan: None };
        let done = keyspace.reserve_behind(&keyspace.store.pin(), line, (wanted, options.now));
        self.received(Take::from(wanted).into(), done.expect(NEVER_SEALED))
    }

    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        &self.inner.keyspace
    }

    fn join(
        self,
        Patience { n, max_wait }: Patience,
        options: CallOptions<'_>,
        waker: &Waker,
    ) -> Result<Promise, Denied> {
        let inner = self.inner;
        let (call, done) = self.run(Take::Exactly(n), options);
        let line = LineId { origin: LINE, removals: 0, plan: None };
        let decision = match decision(call, done) {
            Err(denied) if denied.reason() == Reason::Empty && max_wait > 0 && !inner.hook.is_shadow() => {
                let wish = Wish { n, max_wait, max_waiting: inner.max_waiting, waker };
                match inner.keyspace.join_line(&inner.keyspace.store.pin(), line, &wish) {
                    Ok(Entered::Waits(waits)) => return Ok(Promise::Waits(LineTicket { line, waits, n })),
                    Ok(Entered::Granted(granted)) => Ok(granted),
                    Ok(Entered::Lost) => unreachable!("{NEVER_SEALED}"),
                    Err(denied) => Err(denied),
                }
            }
            decision => decision,
        };
        inner.hook.observe(n, decision).map(Promise::Granted)
    }

    fn look_at_turn(self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.inner.keyspace.look_at_turn(ticket.line, &ticket.waits, fired, waker)
    }

    fn leave_line(self, ticket: &LineTicket) {
        self.inner.keyspace.leave_line(ticket.line, &ticket.waits);
    }

    fn granted_in_line(self, ticket: &LineTicket) -> Granted {
        self.inner.keyspace.granted_in_line(ticket.line, ticket.n)
    }

    fn engine(&self) -> &Engine {
        &self.inner.keyspace.engine
    }

    fn hook(&self) -> &DecisionHook {
        &self.inner.hook
    }

    fn jitter(self) -> Jitter {
        self.inner.jitter
    }
}

impl<'a, K, R, S> Asked<'a> for Shared<'a, K, R, S>
where
    K: Hash + Eq + Send + Sync,
    R: Rule,
    S: Send + Sync,
{
    type Rule = R;
}

impl<K, R, S> Clone for Shared<'_, K, R, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, R, S> Copy for Shared<'_, K, R, S> {}

impl<K, R, S> fmt::Debug for Shared<'_, K, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
