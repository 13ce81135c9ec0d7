//! The touches of a line of callers that wait for tokens of a key.

use std::hash::Hash;
use std::task::Waker;

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::{Done, Engine};
use crate::bucket::lease::Mode;
use crate::bucket::line::caller_line::{LineTurn, Wakes};
use crate::bucket::line::word_bank::{Entered, Waits, Wish, WordBank};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::lines::{LineId, ShardOfLines, lock};
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;
use crate::word::verb::Reserve;

impl<K: Hash + Eq> Keyspace<K> {
    /// Runs `run` on the bucket of a line.
    fn with_bank<T>(
        &self,
        pin: &StoreGuard<'_, K>,
        id: &LineId,
        run: impl FnOnce(&mut WordBank<'_, BankWord<'_>>) -> T,
    ) -> T {
        let receipt = id.receipt();
        run(&mut bank_of(&self.engine, self.bucket_of(pin, &receipt), id.plan))
    }

    /// Joins the line of an entry.
    pub(crate) fn join_line(
        &self,
        pin: &StoreGuard<'_, K>,
        id: LineId,
        wish: &Wish<'_>,
    ) -> Result<Entered, Denied> {
        let mut wakes = Wakes::default();
        let mut shard = self.parts().lines.of(id.origin);
        let line = shard.get_or_new(id);
        let entered = self.with_bank(pin, &id, |bank| bank.join(line, wish, &mut wakes));
        shard.drop_over(id.origin);
        drop(shard);
        wakes.wake();
        entered
    }

    /// Returns the turn of a caller in line, and the version of the terms.
    pub(crate) fn look_at_turn(
        &self,
        id: LineId,
        place: &Waits,
        fired: bool,
        waker: &Waker,
    ) -> (LineTurn, u64) {
        let (pin, mut wakes) = (self.store.pin(), Wakes::default());
        let mut shard = self.parts().lines.of(id.origin);
        let Some(line) = shard.get(&id) else { return (LineTurn::Served, 0) };
        let turn = self.with_bank(&pin, &id, |bank| bank.look_at_turn(line, place, fired, waker, &mut wakes));
        shard.drop_over(id.origin);
        drop(shard);
        wakes.wake();
        turn
    }

    /// Takes a caller out of its line.
    pub(crate) fn leave_line(&self, id: LineId, place: &Waits) {
        let (pin, mut wakes) = (self.store.pin(), Wakes::default());
        let mut shard = self.parts().lines.of(id.origin);
        let Some(line) = shard.get(&id) else { return };
        self.with_bank(&pin, &id, |bank| line.leave(bank, place.id, &mut wakes));
        shard.drop_over(id.origin);
        drop(shard);
        wakes.wake();
        self.was_given();
    }

    /// Reserves tokens behind the line of an entry; `None` if the bucket is lost.
    pub(crate) fn reserve_behind(
        &self,
        pin: &StoreGuard<'_, K>,
        id: LineId,
        wanted: (Reserve, Option<Moment>),
    ) -> Option<Result<Done, Denied>> {
        let mut wakes = Wakes::default();
        let mut shard = self.parts().lines.of(id.origin);
        let line = shard.get(&id);
        let done = self.with_bank(pin, &id, |bank| bank.reserve(line, wanted, &mut wakes));
        shard.drop_over(id.origin);
        drop(shard);
        wakes.wake();
        done
    }

    /// Returns the grant of `n` tokens to a caller that has waited for them, and takes nothing.
    ///
    /// The tokens that remain are those of this moment; 0 if the bucket is lost.
    pub(crate) fn granted_in_line(&self, id: LineId, n: u64) -> Granted {
        self.with_bank(&self.store.pin(), &id, |bank| bank.granted(n))
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
        shard.touch(origin, |id, line| _ = self.with_bank(pin, id, |bank| line.serve(bank, wakes)));
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

/// The word of a bucket in a store, until its key is removed.
type BankWord<'a> = UnlessRemoved<'a, FoundBucket<'a>>;
