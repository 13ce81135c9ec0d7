//! The touches of a line of callers that wait for tokens of a key.

use std::hash::Hash;

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::bucket::lease::Mode;
use crate::bucket::line::caller_line::{CallerLine, Wakes};
use crate::bucket::line::word_bank::WordBank;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::lines::{LineId, ShardOfLines, lock};
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;

/// The bucket of a line, in a store or not.
pub(crate) type LineBank<'a> = WordBank<'a, UnlessRemoved<'a, FoundBucket<'a>>>;

impl<K: Hash + Eq> Keyspace<K> {
    /// Returns the bucket of a line.
    fn bank<'a>(&'a self, pin: &'a StoreGuard<'_, K>, id: &LineId) -> LineBank<'a> {
        bank_of(&self.engine, self.bucket_of(pin, &id.receipt()), id.plan)
    }

    /// Runs `run` on a line and its bucket, and wakes callers after it.
    ///
    /// There is no line if no caller waits, unless `makes` is true.
    pub(crate) fn with_line<T>(
        &self,
        id: &LineId,
        makes: bool,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T {
        let (pin, mut wakes) = (self.store.pin(), Wakes::default());
        let mut shard = self.parts().lines.of(id.origin);
        let mut bank = self.bank(&pin, id);
        let line = if makes { Some(shard.get_or_new(*id)) } else { shard.get(id) };
        let result = run(line, &mut bank, &mut wakes);
        shard.drop_over(id.origin);
        drop(shard);
        if bank.was_given {
            self.was_given();
        }
        wakes.wake();
        result
    }

    /// Serves the lines of an entry, or of all entries. Once it is removed, callers that are not
    /// due join again.
    pub(crate) fn serve_lines(&self, pin: &StoreGuard<'_, K>, origin: Option<Origin>) {
        if !self.parts().lines.are_made() {
            return;
        }
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
    plan: Option<PlanTerms>,
) -> WordBank<'a, UnlessRemoved<'a, W>> {
    let mut bank = WordBank::new(engine, found.map(Mode::Plain), plan, None);
    bank.is_gone |= found.is_some_and(UnlessRemoved::is_gone);
    bank
}
