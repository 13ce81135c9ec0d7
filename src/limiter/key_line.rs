//! Waiting for tokens of a key, and reservations behind its line.

use std::hash::{BuildHasher, Hash};
use std::task::Waker;

use crate::bucket::engine::Done;
use crate::bucket::line::word_bank::{Entered, Wish};
use crate::bucket::receipt::Receipt;
use crate::keyed::key::ToKey;
use crate::keyed::lines::LineId;
use crate::keyed::protocol::MAX_ROUNDS;
use crate::limiter::asked::Patience;
use crate::limiter::key_call::KeyCall;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::verbs::decision;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::TakeOutcome;
use crate::word::verb::{Call, Reserve, Take};

/// A take that was tried at once.
enum Tried {
    Decided(Result<Done, Denied>),
    /// The tokens are not there: the line of their bucket, and the refusal of a caller that does
    /// not wait.
    InLine(LineId, Denied),
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyCall<'_, K, Q, S> {
    /// Takes tokens that are there, or returns the line in which to wait for them.
    ///
    /// The key gets an entry before its line is locked: no code of a key runs under the mutex.
    fn try_now(&self, take: Take) -> (Call, Tried) {
        let removals = self.removals();
        let (call, done) = self.run(take);
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
    pub(super) fn join(&self, patience: Patience, waker: &Waker) -> Result<Promise, Denied> {
        let Patience { n, max_wait } = patience;
        let (hook, keyspace) = (&self.inner.hook, &self.inner.keyspace);
        let wish = Wish { n, max_wait, max_waiting: self.inner.max_waiting, waker };
        for _ in 0..MAX_ROUNDS {
            let line = match self.try_now(Take::Exactly(n)) {
                (_, Tried::InLine(line, _)) if max_wait > 0 && !hook.is_shadow() => line,
                (_, Tried::InLine(_, denied)) => return hook.observe(n, Err(denied)).map(Promise::Granted),
                (call, Tried::Decided(done)) => {
                    return hook.observe(n, decision(call, done)).map(Promise::Granted);
                }
            };
            match keyspace.join_line(self.entry.pin, line, &wish) {
                Ok(Entered::Waits(waits)) => return Ok(Promise::Waits(LineTicket { line, waits, n })),
                Ok(Entered::Granted(granted)) => return hook.observe(n, Ok(granted)).map(Promise::Granted),
                Ok(Entered::Lost) => {}
                Err(denied) => return hook.observe(n, Err(denied)).map(Promise::Granted),
            }
        }
        hook.observe(n, Err(self.no_entry(n))).map(Promise::Granted)
    }

    /// Reserves tokens, and returns a receipt that is valid without the key.
    pub(crate) fn reserve(&self, wanted: Reserve) -> Result<(Granted, Receipt), Denied> {
        let Reserve { n, keep, max_wait } = wanted;
        if max_wait == 0 || self.inner.hook.is_shadow() {
            return self.receive_by_entry(Take::now(n, keep));
        }
        for _ in 0..MAX_ROUNDS {
            let removals = self.removals();
            let (call, done) = match self.try_now(Take::now(n, keep)) {
                (call, Tried::Decided(done)) => (call, done),
                (Call { plan, .. }, Tried::InLine(line, _)) => {
                    let call = Call { take: wanted.into(), plan };
                    match self.inner.keyspace.reserve_behind(self.entry.pin, line, (wanted, self.options.now))
                    {
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
        self.received(Call::from(Take::from(wanted)), Err(self.no_entry(n)), 0)
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
