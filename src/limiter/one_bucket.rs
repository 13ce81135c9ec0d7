//! The bucket of a `Limit` as the target of a request.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use crate::bucket::atomic::{BucketRef, Order, ReadClock};
use crate::bucket::engine::{At, Done, Now, When};
use crate::bucket::lease::{Mode, Spread};
use crate::bucket::line::caller_line::{CallerLine, Wakes};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::idle;
use crate::keyed::in_line::{LineBank, Touch};
use crate::keyed::lines::LineId;
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::store::FoundBucket;
use crate::limiter::asked::{Asked, CallOptions, Frame, Lent, Site, Target};
use crate::limiter::limit::Limit;
use crate::limiter::rule::Rule;
use crate::limiter::verbs::Verb;
use crate::rule::counts::Counting;
use crate::time::clock::Moment;
use crate::word::by_refill::{BUCKETS, attempt_by};
use crate::word::decision::Denied;
use crate::word::plan::PlanTerms;
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Take};

/// The bucket of a `Limit` is in no store: it is neither sealed nor lost.
const IN_NO_STORE: &str = "only buckets of a store are sealed";

impl<R: Rule> Limit<R> {
    const FIRST: Order = if R::WORDS == BUCKETS { Order::ClockFirst } else { Order::WordFirst };

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
                if let Ok(done) = self.bucket.attempt_by(Self::FIRST, read, verb.take(), by) {
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
                // For a hook no attempt was made.
                if !self.fast_path
                    && let Ok(done) = self.bucket.attempt_by(Self::FIRST, read, verb.take(), by)
                {
                    return verb.observed(&self.hook, done);
                }
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
        verb.decided(&self.hook, (call, Ok(self.run_on_word(read, call))))
    }

    fn run_on_word(&self, read: impl ReadClock, call: Call<'_>) -> Done {
        self.mode().charge(&self.engine, Some(State::FULL), read, call).expect(IN_NO_STORE)
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
            self.with_line(&LineId::OWN, Touch::Looks, |line, bank, wakes| {
                line.into_iter().for_each(|line| _ = line.serve(bank, wakes));
            });
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

impl<R: Rule> Target for &Limit<R> {
    type Site = Self;

    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        match options {
            CallOptions { plan: Some(_), .. } => self.decide_under_a_plan(verb),
            CallOptions { now: None, .. } => self.decide_by(verb, Now(&self.engine)),
            CallOptions { now: Some(now), .. } => self.decide_by(verb, At(&self.engine, now)),
        }
    }

    fn site(self) -> Self {
        self
    }

    fn frame(&self) -> Frame<'_> {
        let Limit { engine, hook, jitter, max_waiting, .. } = *self;
        Frame { engine, hook, jitter: *jitter, max_waiting: *max_waiting }
    }

    fn settles(&self) -> &dyn Ledger {
        *self
    }

    fn with_line<T>(
        self,
        _: &LineId,
        touch: Touch,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T {
        let mut wakes = Wakes::default();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if touch == Touch::Joins {
            self.waited.store(true, Relaxed);
            line.get_or_insert_default();
        }
        let mode = match self.mode() {
            Mode::Plain(bucket) => Mode::Plain(UnlessRemoved::never(FoundBucket::Map(bucket, Origin::Own))),
            Mode::Spread(spread) => Mode::Spread(spread),
        };
        let mut bank = LineBank::new(&self.engine, Some(mode), None, Some(State::FULL));
        let result = run(line.as_deref_mut(), &mut bank, &mut wakes);
        drop(line);
        wakes.wake();
        result
    }
}

impl<R: Rule> Site for &Limit<R> {
    fn charge(&self, call: Call<'_>, now: Option<Moment>) -> Result<Done, Denied> {
        // A single bucket is found without a level.
        let take = if let Take::Touch = call.take { Take::Exactly(0) } else { call.take };
        Ok(self.run_on_word(When(&self.engine, now), Call { take, ..call }))
    }

    fn look(&self, call: Call<'_>, now: Option<Moment>) -> (bool, Done) {
        self.mode().look(&self.engine, When(&self.engine, now), call)
    }

    fn refund(&self, _: Option<&PlanTerms>, n: u64) {
        self.settle_word(Settle::Refund(n));
    }
}

impl<'a, R: Rule> Lent<'a> for &'a Limit<R> {
    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        self
    }
}

impl<'a, R: Rule> Asked<'a> for &'a Limit<R> {
    type Rule = R;
}
