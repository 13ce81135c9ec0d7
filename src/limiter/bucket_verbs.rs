//! How a `TokenBucket` decides and settles.

use crate::bucket::atomic::{BucketRef, Order, ReadClock};
use crate::bucket::engine::{Done, Now};
use crate::bucket::lease::{LeaseCells, Mode, Spread, thread_index};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::idle;
use crate::limiter::token_bucket::TokenBucket;
use crate::quota::counts::Counting;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted, exactly};
use crate::word::state::{Origin, State};
use crate::word::verb::{Call, Take};
use crate::word::window::{FIRST_USE, SUB_WINDOWS, WEIGHTED, WindowTerms};

/// The bucket of a `TokenBucket` is in no store.
const NEVER_SEALED: &str = "only buckets of a store are sealed";

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

    #[inline(always)]
    pub(super) fn decide(&self, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        if self.fast_path
            && let Ok(done) = self.bucket.attempt(Order::ClockFirst, read, n)
        {
            return exactly(n, done);
        }
        self.decide_anyhow(n, read)
    }

    // Out of line and small: code inlined beside an attempt takes registers from it, 7 to 12
    // instructions.
    #[cold]
    #[inline(never)]
    fn decide_anyhow(&self, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let Some(cells) = &self.cells else { return self.decide_again(n, read) };
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
            Ok(done) => exactly(n, done),
            Err(_) => self.lease(cells, thread_index(), n, read),
        }
    }

    /// Takes tokens that are not on lease to this core.
    #[cold]
    #[inline(never)]
    fn lease(&self, cells: &LeaseCells, own: usize, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        self.in_cells(cells).acquire_anyhow(own, read, n)
    }

    #[inline(never)]
    fn decide_again(&self, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let again = self.engine.attempt_again(&*self.bucket, read, n);
        let Done { outcome, reading, .. } =
            again.map_or_else(|| self.run(read, Take::Exactly(n)), Done::from);
        self.hook.observe(n, Take::Exactly(n).decision((outcome, reading)))
    }

    /// Takes `n` tokens of a word that counts windows.
    #[inline(always)]
    pub(super) fn decide_in_window(
        &self,
        counting: Counting,
        n: u64,
        read: impl ReadClock,
    ) -> Result<Granted, Denied> {
        match counting {
            Counting::SubWindows => self.decide_by_counts::<SUB_WINDOWS>(n, read),
            Counting::FirstUse => self.decide_by_counts::<FIRST_USE>(n, read),
            Counting::Weighted => self.decide_by_counts::<WEIGHTED>(n, read),
            _ => self.decide_by_loop(n, read),
        }
    }

    #[inline(always)]
    fn decide_by_counts<const COUNTING: u8>(&self, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let by = |reading| WindowTerms::<COUNTING>::at(reading, self.engine.source.counts());
        if self.fast_path
            && let Ok((outcome, reading)) = self.bucket.attempt_by(Order::WordFirst, read, n, by)
        {
            return exactly(n, (outcome, by(reading)));
        }
        self.decide_by_counts_again::<COUNTING>(n, read)
    }

    #[cold]
    #[inline(never)]
    fn decide_by_counts_again<const COUNTING: u8>(
        &self,
        n: u64,
        read: impl ReadClock,
    ) -> Result<Granted, Denied> {
        let by = |reading| WindowTerms::<COUNTING>::at(reading, self.engine.source.counts());
        match self.engine.attempt_again_by(&*self.bucket, read, n, by) {
            Some((outcome, reading)) => self.hook.observe(n, exactly(n, (outcome, by(reading)))),
            None => self.decide_by_loop(n, read),
        }
    }

    #[cold]
    #[inline(never)]
    fn decide_by_loop(&self, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let call = Call::from(Take::Exactly(n));
        let Done { outcome, reading, .. } = self.run(read, call.take);
        self.hook.observe(n, call.decision(outcome, reading))
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
