//! The access to the lines of callers that wait for a bucket of the store.

use std::hash::Hash;

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::bucket::lease::Mode;
use crate::bucket::line::caller_line::{CallerLine, Wakes};
use crate::bucket::line::word_bank::WordBank;
use crate::fault::{Fault, injected};
use crate::keyed::keyspace::{Keyspace, Parts};
use crate::keyed::lines::{LineId, ShardOfLines, lock};
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::sync::{Ordering, fence};
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;

/// What a caller does at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Joins the line, which is made if there is none.
    Joins,
    /// Takes tokens behind the callers that wait.
    Reserves,
    /// Looks at its turn, or leaves. There is no line if no caller waits.
    Looks,
}

/// The bucket of a line, in a store or not.
pub(crate) type LineBank<'a> = WordBank<'a, UnlessRemoved<'a, FoundBucket<'a>>>;

impl<K: Hash + Eq> Keyspace<K> {
    /// Returns the bucket of a line.
    fn bank<'a>(&'a self, pin: &'a StoreGuard<'_, K>, id: &'a LineId) -> LineBank<'a> {
        bank_of(&self.engine, self.bucket_of(pin, &id.receipt()), id.plan.as_ref())
    }

    /// Runs `run` on a line and its bucket, and wakes callers after it.
    ///
    /// The bucket is lost to a caller that comes to an overflow bucket if the key `is_present`
    /// meanwhile.
    pub(crate) fn with_line<T>(
        &self,
        id: &LineId,
        touch: Touch,
        is_present: impl FnOnce(&StoreGuard<'_, K>) -> bool,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T {
        let (pin, mut wakes) = (self.store.pin(), Wakes::default());
        let comes = touch != Touch::Looks && matches!(id.origin, Origin::Overflow(_));
        let entered = comes.then(|| self.entered(id.origin, || is_present(&pin)));
        let mut shard = self.parts().lines.of(id.origin);
        if entered.is_some_and(|entered| entered != shard.entered) && !injected(Fault::EntryUnseen) {
            drop(shard);
            return run(None, &mut bank_of(&self.engine, None, id.plan.as_ref()), &mut wakes);
        }
        let mut bank = self.bank(&pin, id);
        let line = if touch == Touch::Joins { Some(shard.get_or_new(*id)) } else { shard.get(id) };
        let result = run(line, &mut bank, &mut wakes);
        shard.drop_over(id.origin);
        drop(shard);
        if bank.was_given {
            self.was_given();
        }
        wakes.wake();
        result
    }

    /// Returns the keys of the shard that have entered the store, as long as the key of an overflow
    /// bucket has not; else a number that they never reach.
    ///
    /// The fence is that of [`protocol`](super::protocol). Model, with plain loads:
    /// `a_hold_of_a_key_that_enters_the_table_is_charged_to_the_key`.
    pub(crate) fn entered(&self, origin: Origin, is_present: impl FnOnce() -> bool) -> u64 {
        let entered = self.parts().lines.of(origin).entered;
        fence(Ordering::SeqCst);
        // No code of a key runs under the mutex.
        entered.wrapping_sub(u64::from(is_present()))
    }

    /// Closes the lines of the overflow buckets of a key that has just entered the store, before
    /// its bucket starts from the level of one. [`wake_outside`](Self::wake_outside) wakes their
    /// callers.
    pub(crate) fn close_outside(&self, hash: u64) {
        let (lines, origin) = (&self.parts().lines, Origin::Overflow(hash));
        if self.waits_outside() {
            let mut shard = lines.of(origin);
            shard.entered += 1;
            shard.touch(origin, |id, line| {
                let bucket = UnlessRemoved::never(self.outside(hash, id.plan.as_ref()));
                line.close(&mut bank_of(&self.engine, Some(bucket), id.plan.as_ref()));
            });
        }
    }

    /// Wakes the callers of the lines that were closed as the key entered the store.
    pub(crate) fn wake_outside(&self, pin: &StoreGuard<'_, K>, hash: u64) {
        if self.waits_outside() {
            self.serve_lines(pin, Some(Origin::Overflow(hash)));
        }
    }

    /// Returns whether a caller may wait for an overflow bucket. Its line is made after the bucket.
    fn waits_outside(&self) -> bool {
        let Parts { lines, overflow, .. } = self.parts();
        lines.are_made() && overflow.are_made()
    }

    /// Serves the lines of an entry, or of all entries. Once it is removed, callers that are not
    /// due join again.
    #[inline]
    pub(crate) fn serve_lines(&self, pin: &StoreGuard<'_, K>, origin: Option<Origin>) {
        if self.parts().lines.are_made() {
            self.serve_made_lines(pin, origin);
        }
    }

    #[cold]
    fn serve_made_lines(&self, pin: &StoreGuard<'_, K>, origin: Option<Origin>) {
        let mut wakes = Wakes::default();
        match origin {
            Some(origin) => self.serve_line(pin, &mut self.parts().lines.of(origin), origin, &mut wakes),
            None => {
                for shard in self.parts().lines.shards() {
                    let mut shard = lock(shard);
                    for origin in shard.origins() {
                        self.serve_line(pin, &mut shard, origin, &mut wakes);
                    }
                }
            }
        }
        wakes.wake();
    }

    fn serve_line(
        &self,
        pin: &StoreGuard<'_, K>,
        shard: &mut ShardOfLines,
        origin: Origin,
        wakes: &mut Wakes,
    ) {
        shard.touch(origin, |id, line| _ = line.serve(&mut self.bank(pin, id), wakes));
    }
}

impl<K> Keyspace<K> {
    /// Lets callers in line set their timers anew, after a change of quota.
    pub(crate) fn unset_timers(&self) {
        let mut wakes = Wakes::default();
        for shard in self.parts().lines.0.get().into_iter().flatten() {
            let mut shard = lock(shard);
            for origin in shard.origins() {
                shard.touch(origin, |_, line| line.unset_timers(&mut wakes));
            }
        }
        wakes.wake();
    }
}

/// Returns the bank of a line, by the bucket that its receipt finds.
pub(crate) fn bank_of<'a, W: BucketRef>(
    engine: &'a Engine,
    found: Option<UnlessRemoved<'a, W>>,
    plan: Option<&'a PlanTerms>,
) -> WordBank<'a, UnlessRemoved<'a, W>> {
    let mut bank = WordBank::new(engine, found.map(Mode::Plain), plan, None);
    bank.is_gone |= found.is_some_and(UnlessRemoved::is_gone);
    bank
}
