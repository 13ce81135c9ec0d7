//! Waiting for tokens of a `TokenBucket`.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::line::caller_line::{CallerLine, LineTurn, Wakes};
use crate::bucket::line::word_bank::{Entered, Wish, WordBank};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Reservation, Reserved};
use crate::keyed::lines::LineId;
use crate::limiter::all_of::BucketLimit;
use crate::limiter::observer::DecisionHook;
use crate::limiter::token_bucket::TokenBucket;
use crate::limiter::waiting::{LineTicket, Promise, WaitsInLine};
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::State;
use crate::word::verb::Take;

/// The bucket of a `TokenBucket` is in no store.
const NEVER_LOST: &str = "only buckets of a store are lost";

impl TokenBucket {
    pub(crate) fn reserve_for(&self, n: u64, max_wait: u64) -> Reserved<'_> {
        // In shadow mode no caller waits, either.
        if max_wait == 0 || self.hook.is_shadow() {
            let (granted, receipt) = self.receive(n, Take::Exactly(n))?;
            return Ok(Reservation::new(self, receipt, granted));
        }
        let mut wakes = Wakes::default();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.bank().reserve(line.as_deref_mut(), n, max_wait, &mut wakes).expect(NEVER_LOST);
        drop(line);
        wakes.wake();
        let done = match done {
            Ok(done) => done,
            Err(denied) => {
                let granted = self.hook.observe(n, Err(denied))?;
                return Ok(Reservation::new(self, Receipt::void(self.engine.clock.now()), granted));
            }
        };
        let (granted, receipt) = self.received(n, Take::Reserve { n, max_wait }, done)?;
        Ok(Reservation::new(self, receipt, granted))
    }

    fn bank(&self) -> WordBank<'_, &Bucket> {
        WordBank::new(&self.engine, Some(self.mode()), None, Some(State::FULL))
    }

    /// Runs `run` on the line.
    fn with_line<T>(
        &self,
        run: impl FnOnce(&mut CallerLine, &mut WordBank<'_, &Bucket>, &mut Wakes) -> T,
    ) -> T {
        let mut wakes = Wakes::default();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        self.waited.store(true, Relaxed);
        let result = run(line.get_or_insert_default(), &mut self.bank(), &mut wakes);
        drop(line);
        wakes.wake();
        result
    }

    /// Lets callers in line set their timers anew, after a change of quota.
    pub(crate) fn unset_timers(&self) {
        let mut wakes = Wakes::default();
        if let Some(line) = self.line.lock().unwrap_or_else(PoisonError::into_inner).as_deref_mut() {
            line.unset_timers(&mut wakes);
        }
        wakes.wake();
    }

    /// Settles a take, and returns the tokens charged. Tokens that come back go to the callers in
    /// line.
    pub(super) fn settle_word(&self, settle: Settle<'_>) -> u64 {
        let charged = self.mode().settle(&self.engine, None, settle);
        if !matches!(settle, Settle::Charge(_)) && self.waited.load(Relaxed) {
            self.with_line(|line, bank, wakes| _ = line.serve(bank, wakes));
        }
        charged
    }
}

impl WaitsInLine for BucketLimit<'_> {
    fn join(&self, max_wait: u64, waker: &Waker) -> Result<Promise, Denied> {
        let BucketLimit { bucket, n } = *self;
        let wish = Wish { n, max_wait, max_waiting: bucket.max_waiting, waker };
        let decision = loop {
            let Done { outcome, reading, .. } = bucket.run(Now(&bucket.engine), Take::Exactly(n));
            let decision = Take::Exactly(n).decision((outcome, reading));
            let waits = decision.is_err_and(|denied| denied.reason() == Reason::Empty);
            if !waits || max_wait == 0 || bucket.hook.is_shadow() {
                break decision;
            }
            match bucket.with_line(|line, bank, wakes| bank.join(line, &wish, wakes)) {
                Ok(Entered::Waits(waits)) => {
                    return Ok(Promise::Waits(LineTicket { line: LineId::OWN, waits, n }));
                }
                Ok(Entered::Granted(granted)) => break Ok(granted),
                // Turned away: the quota was changed since the take.
                Ok(Entered::Lost) => {}
                Err(denied) => break Err(denied),
            }
        };
        bucket.hook.observe(n, decision).map(Promise::granted)
    }

    fn look(&self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.bucket.with_line(|line, bank, wakes| bank.look_at_turn(line, &ticket.waits, fired, waker, wakes))
    }

    fn leave(&self, ticket: &LineTicket) {
        self.bucket.with_line(|line, bank, wakes| line.leave(bank, ticket.waits.id, wakes));
    }

    fn granted(&self, ticket: &LineTicket) -> Granted {
        self.bucket.bank().granted(ticket.n)
    }

    fn engine(&self) -> &Engine {
        &self.bucket.engine
    }

    fn hook(&self) -> &DecisionHook {
        &self.bucket.hook
    }

    fn jitter(&self) -> Jitter {
        self.bucket.jitter
    }
}
