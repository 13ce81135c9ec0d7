//! The bucket of a `Limit` as the target of a request.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::bucket::atomic::{Bucket, BucketRef, Order, ReadClock};
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::lease::{Mode, Spread};
use crate::bucket::line::caller_line::{CallerLine, LineTurn, Wakes};
use crate::bucket::line::word_bank::{Entered, Wish, WordBank};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::idle;
use crate::keyed::lines::LineId;
use crate::limiter::asked::{Asked, Patience, Target};
use crate::limiter::hook::DecisionHook;
use crate::limiter::limit::Limit;
use crate::limiter::options::CallOptions;
use crate::limiter::rule::Rule;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::verbs::{Verb, decision};
use crate::rule::counts::Counting;
use crate::time::clock::Moment;
use crate::time::jitter::Jitter;
use crate::word::by_refill::{BUCKETS, WINDOWS, attempt_by};
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Reserve, Take};

/// The bucket of a `Limit` is in no store: it is neither sealed nor lost.
const IN_NO_STORE: &str = "only buckets of a store are sealed";

impl<R: Rule> Limit<R> {
    /// Returns the bucket, plain or spread.
    pub(super) fn mode(&self) -> Mode<'_> {
        match self.cells.as_deref() {
            None => {
                self.engine.sweep_if_due(|| {
                    let before = self.engine.read();
                    idle::restamp(&self.engine, &*self.bucket);
                    self.engine.swept(&before);
                });
                Mode::Plain(&self.bucket)
            }
            Some(cells) => Mode::Spread(Spread { bucket: &self.bucket, engine: &self.engine, cells }),
        }
    }

    /// Returns the kind of words, where an attempt knows it.
    #[inline(always)]
    fn attempted(&self) -> Option<Counting> {
        let counting =
            if R::WORDS == BUCKETS { Counting::Bucket } else { self.engine.source.counts().counting };
        if self.fast_path { Some(counting) } else { None }
    }

    #[inline(always)]
    pub(super) fn decide_by<V: Verb>(&self, verb: V, read: impl ReadClock) -> V::Answer {
        attempt_by!(
            R::WORDS,
            self.attempted(),
            self.engine.source.counts(),
            |by| {
                let first = if R::WORDS == WINDOWS { Order::WordFirst } else { Order::ClockFirst };
                if let Ok(done) = self.bucket.attempt_by(first, read, verb.take(), by) {
                    return verb.answer(done);
                }
            },
            {}
        );
        decide_slowly(verb, read, self)
    }

    /// Refuses: a plan is of a limiter of keys.
    #[cold]
    #[inline(never)]
    fn decide_under_a_plan<V: Verb>(&self, verb: V) -> V::Answer {
        verb.decided(&self.hook, (verb.take().into(), Err(Denied::foreign_plan())))
    }

    /// Decides by more attempts on a plain bucket, after a lost one or for a hook.
    #[inline(never)]
    fn decide_again<V: Verb>(&self, verb: V, read: impl ReadClock) -> V::Answer {
        let counting = Some(self.engine.source.counts().counting);
        attempt_by!(
            R::WORDS,
            counting,
            self.engine.source.counts(),
            |by| {
                if let Some(done) = self.engine.attempt_again(&*self.bucket, read, verb.take(), by) {
                    return verb.observed(&self.hook, done);
                }
            },
            {}
        );
        self.decide_by_loop(verb, read)
    }

    #[cold]
    #[inline(never)]
    fn decide_by_loop<V: Verb>(&self, verb: V, read: impl ReadClock) -> V::Answer {
        let call = Call::from(verb.take());
        verb.decided(&self.hook, (call, Ok(self.charge(read, call))))
    }

    fn charge(&self, read: impl ReadClock, call: Call) -> Done {
        self.mode().charge(&self.engine, Some(State::FULL), read, call).expect(IN_NO_STORE)
    }

    /// Returns the outcome that a take would have.
    fn seen(&self, tried: Take, options: CallOptions<'_>) -> Result<Done, Denied> {
        if options.plan.is_some() {
            return Err(Denied::foreign_plan());
        }
        let (_, done) = match options.now {
            None => self.mode().look(&self.engine, Now(&self.engine), tried.into()),
            Some(now) => self.mode().look(&self.engine, At(&self.engine, now), tried.into()),
        };
        Ok(done)
    }

    /// Shows the decision on a take to the hook, and returns a receipt for the take: a void one for
    /// an overruled refusal.
    fn received(&self, call: Call, done: Result<Done, Denied>) -> Result<(Granted, Receipt), Denied> {
        let receipt = match done {
            Ok(Done { outcome, reading, leased }) if outcome.granted => {
                Receipt::of(call, outcome, &reading).beside(reading.refill.units(leased))
            }
            Ok(Done { reading, .. }) => Receipt::void(Moment(reading.nanos())),
            Err(_) => Receipt::void(self.engine.clock.now()),
        };
        let undo = || self.undo(&receipt);
        let granted = self.hook.observe_or(call.take.n(), decision(call, done), undo)?;
        Ok((granted, receipt))
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

    /// Lets callers in line set their timers anew, after a change of the rule.
    pub(super) fn unset_timers(&self) {
        let mut wakes = Wakes::default();
        if let Some(line) = self.line.lock().unwrap_or_else(PoisonError::into_inner).as_deref_mut() {
            line.unset_timers(&mut wakes);
        }
        wakes.wake();
    }

    /// Settles a take, and returns the tokens charged. Tokens that come back go to the callers in
    /// line.
    fn settle_word(&self, settle: Settle<'_>) -> u64 {
        let charged = self.mode().settle(&self.engine, None, settle);
        if !matches!(settle, Settle::Charge(_)) && self.waited.load(Relaxed) {
            self.with_line(|line, bank, wakes| _ = line.serve(bank, wakes));
        }
        charged
    }
}

// Out of line and small: code inlined beside an attempt takes registers from it, 7 to 12
// instructions.
#[cold]
#[inline(never)]
fn decide_slowly<R: Rule, V: Verb>(verb: V, read: impl ReadClock, limit: &Limit<R>) -> V::Answer {
    match limit.cells.as_deref() {
        Some(cells) if V::TAKES_LEASED => {
            verb.take_leased(Spread { bucket: &limit.bucket, engine: &limit.engine, cells }, read)
        }
        // Some of the tokens are in the cells.
        Some(_) => limit.decide_by_loop(verb, read),
        None => limit.decide_again(verb, read),
    }
}

impl<R: Rule> Ledger for Limit<R> {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        match receipt.origin {
            Origin::Nowhere => 0,
            _ => self.settle_word(settle),
        }
    }
}

impl<'a, R: Rule> Target<'a> for &'a Limit<R> {
    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        match options {
            CallOptions { plan: Some(_), .. } => self.decide_under_a_plan(verb),
            CallOptions { now: None, .. } => self.decide_by(verb, Now(&self.engine)),
            CallOptions { now: Some(now), .. } => self.decide_by(verb, At(&self.engine, now)),
        }
    }

    fn run(self, take: Take, options: CallOptions<'_>) -> (Call, Result<Done, Denied>) {
        let call = Call::from(take);
        let done = match (options.plan, options.now) {
            (Some(_), _) => Err(Denied::foreign_plan()),
            (None, None) => Ok(self.charge(Now(&self.engine), call)),
            (None, Some(now)) => Ok(self.charge(At(&self.engine, now), call)),
        };
        (call, done)
    }

    fn peek(self, take: Take, options: CallOptions<'_>) -> Snapshot {
        match self.seen(Take::Exactly(0), options) {
            Ok(Done { outcome, reading, .. }) => Call::from(take).snapshot(outcome, reading),
            Err(_) => Snapshot::new(Granted::anyway(0, 0), None),
        }
    }

    fn look(self, take: Take, options: CallOptions<'_>) -> Result<(), Denied> {
        let decision = decision(take.into(), self.seen(take, options));
        self.hook.preview(take.n(), decision)
    }

    fn receive(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        let (call, done) = self.run(take, options);
        self.received(call, done)
    }

    fn undo(self, receipt: &Receipt) {
        self.settle(receipt, Settle::Undo(receipt));
    }

    fn refund(self, n: u64, options: CallOptions<'_>) {
        if options.plan.is_none() {
            self.settle_word(Settle::Refund(n));
        }
    }

    fn hold(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        // A single bucket is found without a level.
        self.receive(if let Take::Touch = take { Take::Exactly(0) } else { take }, options)
    }

    fn reserve(self, wanted: Reserve, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        // In shadow mode no caller waits, either.
        if wanted.max_wait == 0 || self.hook.is_shadow() || options.plan.is_some() {
            return self.receive(Take::now(wanted.n, wanted.keep), options);
        }
        let mut wakes = Wakes::default();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.bank().reserve(line.as_deref_mut(), (wanted, options.now), &mut wakes);
        drop(line);
        wakes.wake();
        self.received(Take::from(wanted).into(), done.expect(IN_NO_STORE))
    }

    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        self
    }

    fn join(
        self,
        Patience { n, max_wait }: Patience,
        options: CallOptions<'_>,
        waker: &Waker,
    ) -> Result<Promise, Denied> {
        let wish = Wish { n, max_wait, max_waiting: self.max_waiting, waker };
        let decision = loop {
            let (call, done) = self.run(Take::Exactly(n), options);
            let decision = decision(call, done);
            let waits = decision.is_err_and(|denied| denied.reason() == Reason::Empty);
            if !waits || max_wait == 0 || self.hook.is_shadow() {
                break decision;
            }
            match self.with_line(|line, bank, wakes| bank.join(line, &wish, wakes)) {
                Ok(Entered::Waits(waits)) => {
                    return Ok(Promise::Waits(LineTicket { line: LineId::OWN, waits, n }));
                }
                Ok(Entered::Granted(granted)) => break Ok(granted),
                // Turned away: the rule was changed since the take.
                Ok(Entered::Lost) => {}
                Err(denied) => break Err(denied),
            }
        };
        self.hook.observe(n, decision).map(Promise::Granted)
    }

    fn look_at_turn(self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.with_line(|line, bank, wakes| bank.look_at_turn(line, &ticket.waits, fired, waker, wakes))
    }

    fn leave_line(self, ticket: &LineTicket) {
        self.with_line(|line, bank, wakes| line.leave(bank, ticket.waits.id, wakes));
    }

    fn granted_in_line(self, ticket: &LineTicket) -> Granted {
        self.bank().granted(ticket.n)
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn hook(&self) -> &DecisionHook {
        &self.hook
    }

    fn jitter(self) -> Jitter {
        self.jitter
    }
}

impl<'a, R: Rule> Asked<'a> for &'a Limit<R> {
    type Rule = R;
}
