//! How a `TokenBucket` decides and settles.

use crate::bucket::atomic::{BucketRef, Order, ReadClock};
use crate::bucket::engine::{Done, Now};
use crate::bucket::lease::{LeaseCells, Mode, Spread, thread_index};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::idle;
use crate::limiter::token_bucket::TokenBucket;
use crate::limiter::verbs::{InFull, Keep, UpTo, Verb};
use crate::quota::counts::Counting;
use crate::time::clock::Moment;
use crate::word::by_refill::{WINDOWS, attempt_by};
use crate::word::decision::{Denied, Granted};
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Take};

/// The bucket of a `TokenBucket` is in no store.
const NEVER_SEALED: &str = "only buckets of a store are sealed";

/// A verb on one bucket, which may be spread.
pub(super) trait BucketVerb: Verb {
    /// Decides where the bucket is spread.
    fn decide_in_cells(self, bucket: &TokenBucket, cells: &LeaseCells, read: impl ReadClock) -> Self::Answer;
}

impl BucketVerb for InFull {
    #[inline(always)]
    fn decide_in_cells(self, bucket: &TokenBucket, cells: &LeaseCells, read: impl ReadClock) -> Self::Answer {
        bucket.decide_in_cells(cells, self.0, read)
    }
}

impl BucketVerb for Keep {
    fn decide_in_cells(self, bucket: &TokenBucket, _: &LeaseCells, read: impl ReadClock) -> Self::Answer {
        bucket.decide_by_loop(self, read)
    }
}

impl BucketVerb for UpTo {
    fn decide_in_cells(self, bucket: &TokenBucket, _: &LeaseCells, read: impl ReadClock) -> Granted {
        bucket.decide_by_loop(self, read)
    }
}

impl TokenBucket {
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
            Some(cells) => Mode::Spread(self.in_cells(cells)),
        }
    }

    /// Returns the bucket, spread over its cells.
    fn in_cells<'a>(&'a self, cells: &'a LeaseCells) -> Spread<'a> {
        Spread { bucket: &self.bucket, engine: &self.engine, cells }
    }

    /// Returns the outcome that a take would have.
    pub(super) fn look(&self, read: impl ReadClock, take: Take) -> Done {
        self.mode().look(&self.engine, read, take.into()).1
    }

    pub(super) fn run(&self, read: impl ReadClock, take: Take) -> Done {
        self.mode().charge(&self.engine, Some(State::FULL), read, take.into()).expect(NEVER_SEALED)
    }

    pub(crate) fn undo(&self, receipt: &Receipt) {
        self.settle(receipt, Settle::Undo(receipt));
    }

    /// Returns the kind of words that the bucket has: it may be that of a window.
    #[inline(always)]
    pub(super) fn counting(&self) -> Counting {
        self.engine.source.counts().counting
    }

    /// Decides by a verb: by an attempt, or by the one call after it.
    #[inline(always)]
    pub(super) fn decide<const WORDS: u8, V: BucketVerb>(
        &self,
        counting: Counting,
        verb: V,
        read: impl ReadClock,
    ) -> V::Answer {
        let counting = if self.fast_path { Some(counting) } else { None };
        attempt_by!(
            WORDS,
            counting,
            self.engine.source.counts(),
            |by| {
                let first = if WORDS == WINDOWS { Order::WordFirst } else { Order::ClockFirst };
                if let Ok(done) = self.bucket.attempt_by(first, read, verb.take(), by) {
                    return verb.answer(done);
                }
            },
            {}
        );
        self.decide_slowly::<WORDS, V>(verb, read)
    }

    // Out of line and small: code inlined beside an attempt takes registers from it, 7 to 12
    // instructions.
    #[cold]
    #[inline(never)]
    fn decide_slowly<const WORDS: u8, V: BucketVerb>(&self, verb: V, read: impl ReadClock) -> V::Answer {
        match &self.cells {
            Some(cells) => verb.decide_in_cells(self, cells, read),
            None => self.decide_again::<WORDS, V>(verb, read),
        }
    }

    /// Takes `n` tokens of a spread bucket.
    #[inline(always)]
    fn decide_in_cells(&self, cells: &LeaseCells, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        if cells.is_drained() {
            return self.decide_drained(cells, n, read);
        }
        let own = thread_index();
        match cells.of(own).take(n) {
            Some(granted) => Ok(granted),
            None => self.lease(cells, own, n, read),
        }
    }

    /// Takes tokens of a spread bucket that has none to lease.
    #[inline(never)]
    fn decide_drained(&self, cells: &LeaseCells, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        match self.in_cells(cells).attempt_drained(read, n) {
            Ok(done) => InFull(n).answer(done),
            Err(_) => self.lease(cells, thread_index(), n, read),
        }
    }

    /// Takes tokens that are not on lease to this core.
    #[cold]
    #[inline(never)]
    fn lease(&self, cells: &LeaseCells, own: usize, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        self.in_cells(cells).acquire_anyhow(own, read, n)
    }

    /// Decides after an attempt, or for a hook.
    #[inline(never)]
    fn decide_again<const WORDS: u8, V: Verb>(&self, verb: V, read: impl ReadClock) -> V::Answer {
        let counts = self.engine.source.counts();
        attempt_by!(
            WORDS,
            Some(counts.counting),
            counts,
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
        verb.decided(&self.hook, call, Ok(self.run(read, call.take)))
    }

    /// Takes tokens, and returns a receipt for them: a void one for an overruled refusal.
    pub(super) fn receive(&self, n: u64, step: Take) -> Result<(Granted, Receipt), Denied> {
        self.received(n, step, self.run(Now(&self.engine), step))
    }

    /// Shows the decision on a take to the hook, and returns a receipt for the take.
    pub(super) fn received(&self, n: u64, step: Take, done: Done) -> Result<(Granted, Receipt), Denied> {
        let Done { outcome, reading, leased } = done;
        let receipt = match outcome.granted {
            true => Receipt::new(outcome, &reading, None).beside(reading.refill.units(leased)),
            false => Receipt::void(Moment(reading.nanos())),
        };
        let decision = Call::from(step).decision(outcome, reading);
        let granted = self.hook.observe_or(n, decision, || self.undo(&receipt))?;
        Ok((granted, receipt))
    }
}

impl Ledger for TokenBucket {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        match receipt.origin {
            Origin::Nowhere => 0,
            _ => self.settle_word(settle),
        }
    }
}
