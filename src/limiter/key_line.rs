//! Waiting for tokens of a key, and reservations behind its line.

use std::hash::{BuildHasher, Hash};
use std::task::Waker;

use crate::bucket::engine::{Done, Engine};
use crate::bucket::line::caller_line::LineTurn;
use crate::bucket::line::word_bank::{Entered, Wish};
use crate::bucket::receipt::Receipt;
use crate::keyed::key::ToKey;
use crate::keyed::lines::LineId;
use crate::keyed::protocol::MAX_ROUNDS;
use crate::limiter::inner::Inner;
use crate::limiter::key_call::{CallOptions, KeyCall};
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::observer::DecisionHook;
use crate::limiter::waiting::{LineTicket, Promise, WaitsInLine};
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::TakeOutcome;
use crate::word::verb::{Call, Take};

/// A take that was tried at once.
enum Tried {
    Decided(Result<Done, Denied>),
    /// The tokens are not there: the line of their bucket, and the refusal of a caller that does
    /// not wait.
    InLine(LineId, Denied),
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyCall<'_, K, Q, S> {
    /// Takes `n` tokens that are there, or returns the line in which to wait for them.
    ///
    /// The key gets an entry before its line is locked: no code of a key runs under the mutex.
    fn try_now(&self, n: u64) -> (Call, Tried) {
        let removals = self.removals();
        let (call, done) = self.run(Take::Exactly(n));
        let Ok(Done { outcome, reading, .. }) = done else { return (call, Tried::Decided(done)) };
        match call.decision(outcome, reading) {
            Err(denied) if denied.reason() == Reason::Empty => {
                let origin = self.entry_of(outcome.origin);
                (call, Tried::InLine(LineId { origin, removals, plan: call.plan }, denied))
            }
            _ => (call, Tried::Decided(done)),
        }
    }

    /// Takes the tokens now, or joins the line of the key.
    fn join(&self, n: u64, max_wait: u64, max_waiting: usize, waker: &Waker) -> Result<Promise, Denied> {
        let (hook, keyspace) = (&self.inner.hook, &self.inner.keyspace);
        let wish = Wish { n, max_wait, max_waiting: max_waiting.min(self.inner.max_waiting), waker };
        for _ in 0..MAX_ROUNDS {
            let removals = self.removals();
            let line = match self.try_now(n) {
                (_, Tried::InLine(line, _)) if max_wait > 0 && !hook.is_shadow() => line,
                (_, Tried::InLine(_, denied)) => return hook.observe(n, Err(denied)).map(Promise::granted),
                (call, Tried::Decided(done)) => {
                    let (granted, receipt) = self.received_by_entry(call, done, removals)?;
                    return Ok(Promise::Granted(granted, receipt));
                }
            };
            match keyspace.join_line(self.entry.pin, line, &wish) {
                Ok(Entered::Waits(waits)) => return Ok(Promise::Waits(LineTicket { line, waits, n })),
                Ok(Entered::Granted(granted)) => return hook.observe(n, Ok(granted)).map(Promise::granted),
                Ok(Entered::Lost) => {}
                Err(denied) => return hook.observe(n, Err(denied)).map(Promise::granted),
            }
        }
        hook.observe(n, Err(self.no_entry(n))).map(Promise::granted)
    }

    /// Reserves tokens, and returns a receipt that is valid without the key.
    pub(crate) fn reserve(&self, n: u64, max_wait: u64) -> Result<(Granted, Receipt), Denied> {
        if max_wait == 0 || self.inner.hook.is_shadow() {
            return self.receive_by_entry(Take::Exactly(n));
        }
        for _ in 0..MAX_ROUNDS {
            let removals = self.removals();
            let (call, done) = match self.try_now(n) {
                (call, Tried::Decided(done)) => (call, done),
                (Call { plan, .. }, Tried::InLine(line, _)) => {
                    let call = Call { take: Take::Reserve { n, max_wait }, plan };
                    match self.inner.keyspace.reserve_behind(self.entry.pin, line, n, max_wait) {
                        None => continue,
                        Some(done) => {
                            let origin = line.origin;
                            let at =
                                |done: Done| Done { outcome: TakeOutcome { origin, ..done.outcome }, ..done };
                            (call, done.map(at))
                        }
                    }
                }
            };
            return self.received_by_entry(call, done, removals);
        }
        self.received(Take::Reserve { n, max_wait }.into(), Err(self.no_entry(n)), 0)
    }

    /// Shows the decision on a take to the hook, and returns a receipt that is valid without the
    /// key.
    fn received_by_entry(
        &self,
        call: Call,
        done: Result<Done, Denied>,
        removals: u64,
    ) -> Result<(Granted, Receipt), Denied> {
        let (granted, receipt) = self.received(call, done, removals)?;
        Ok((granted, self.by_entry(receipt)))
    }

    /// Returns the refusal of a key whose entry comes and goes again and again.
    #[cold]
    fn no_entry(&self, n: u64) -> Denied {
        let now = self.inner.keyspace.engine.clock.nanos();
        Denied::full(n, now, Some(now))
    }
}

impl<K, Q, S> WaitsInLine for KeyLimit<'_, K, Q, S>
where
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher,
{
    fn join(&self, max_wait: u64, waker: &Waker) -> Result<Promise, Denied> {
        self.call(&self.inner.keyspace.store.pin()).join(self.n, max_wait, usize::MAX, waker)
    }

    fn look(&self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.inner.keyspace.look_at_turn(ticket.line, &ticket.waits, fired, waker)
    }

    fn leave(&self, ticket: &LineTicket) {
        self.inner.keyspace.leave_line(ticket.line, &ticket.waits);
    }

    fn granted(&self, ticket: &LineTicket) -> Granted {
        self.inner.keyspace.granted_in_line(ticket.line, ticket.n)
    }

    fn engine(&self) -> &Engine {
        &self.inner.keyspace.engine
    }

    fn hook(&self) -> &DecisionHook {
        &self.inner.hook
    }

    fn jitter(&self) -> Jitter {
        self.inner.jitter
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    /// Takes `n` tokens of a key, or joins its line beside at most `max_waiting` callers.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "it is of a layer"))]
    pub(crate) fn join<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        options: CallOptions<'_>,
        (n, max_wait, max_waiting): (u64, u64, usize),
        waker: &Waker,
    ) -> Result<Promise, Denied> {
        self.call(&self.keyspace.store.pin(), key, options).join(n, max_wait, max_waiting, waker)
    }
}
