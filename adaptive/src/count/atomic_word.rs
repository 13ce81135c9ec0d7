//! The word of an [`Inflight`](crate::Inflight), in memory that threads share.
//!
//! # Orderings
//!
//! `enter` acquires and `leave` releases: a request that takes a place sees the memory effects of
//! each request that left before it. Each change is a read-modify-write, so it continues the
//! release sequence of an earlier `leave`. Checked by `a_place_hands_over_its_work` in
//! `src/tests/models/inflight.rs`. A limit orders no memory, so `put_limit` is relaxed.

use crossbeam_utils::CachePadded;

use crate::count::word::FlightWord;
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering, const_fn};

pub(crate) struct AtomicFlightWord(CachePadded<AtomicU64>);

impl AtomicFlightWord {
    const_fn! {
        pub(crate) const fn new(limit: u32) -> AtomicFlightWord {
            AtomicFlightWord(CachePadded::new(AtomicU64::new(FlightWord::new(limit).0)))
        }
    }

    #[inline]
    pub(crate) fn load(&self) -> FlightWord {
        FlightWord(self.0.load(Ordering::Relaxed))
    }

    /// Takes a place within a share of the limit, and returns the new word. A refusal writes
    /// nothing, and returns the word that it read.
    #[inline]
    pub(crate) fn enter(&self, share: u16) -> Result<FlightWord, FlightWord> {
        let mut word = self.load();
        let limit = word.limit();
        loop {
            let samples = if injected(Fault::LimitApart) { word.with_limit(limit) } else { word };
            let Some(next) = samples.entered(share) else { return Err(word) };
            if injected(Fault::CheckThenCount) {
                return Ok(FlightWord(self.0.fetch_add(1, Ordering::Acquire) + 1));
            }
            // The limit in force stays in the word.
            let next = if injected(Fault::LimitApart) { next.with_limit(word.limit()) } else { next };
            match self.0.compare_exchange_weak(word.0, next.0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(next),
                Err(now) => word = FlightWord(now),
            }
        }
    }

    #[inline]
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Puts a limit in force, beside the count.
    pub(crate) fn put_limit(&self, limit: u32) {
        let mut word = self.load();
        while let Err(now) = self.0.compare_exchange_weak(
            word.0,
            word.with_limit(limit).0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = FlightWord(now);
        }
    }
}
