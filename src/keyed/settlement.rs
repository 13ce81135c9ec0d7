//! Settlements: by the key, and by a receipt that is valid without the key.

use std::hash::Hash;

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Now;
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::fault::{Fault, injected};
use crate::keyed::id::EntryId;
use crate::keyed::key::map_hash;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::OverflowSet;
use crate::keyed::protocol::MAX_ROUNDS;
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::same_hash::SameHash;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::keyed::table::hash_of;
use crate::sync::yield_now;
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;
use crate::word::verb::{Call, Take};

impl<K: Hash + Eq> Keyspace<K> {
    /// Settles a take on the bucket that was found, and returns the tokens charged. Tokens that
    /// come back go to the callers in line.
    #[inline(always)]
    pub(crate) fn settle_found(
        &self,
        pin: &StoreGuard<'_, K>,
        bucket: impl BucketRef,
        plan: Option<&PlanTerms>,
        settle: Settle<'_>,
    ) -> u64 {
        let charged = self.engine.settle(bucket, plan, settle);
        if !matches!(settle, Settle::Charge(_)) {
            self.was_given();
            self.serve_lines(pin, Some(bucket.origin()));
        }
        charged.unwrap_or(0)
    }

    /// Returns the bucket of the requests without a key.
    pub(crate) fn no_key_bucket(&self) -> FoundBucket<'_> {
        FoundBucket::Map(self.parts().overflow.no_key(), Origin::NoKey)
    }

    /// Returns the overflow bucket of the keys with this hash.
    pub(super) fn outside(&self, hash: u64, plan: Option<&PlanTerms>) -> FoundBucket<'_> {
        let bucket = self.parts().overflow.bucket(OverflowSet::of(plan), map_hash(hash));
        FoundBucket::Map(bucket, Origin::Overflow(hash))
    }

    /// Returns the bucket of a key with this hash, if one has an entry.
    fn any_entry<'a>(&self, pin: &'a StoreGuard<'_, K>, hash: u64) -> Option<FoundBucket<'a>> {
        match pin {
            StoreGuard::Map(map, guard) => {
                let (stored, bucket) = SameHash::new(map, map_hash(hash), guard).next()?;
                Some(FoundBucket::Map(bucket, Origin::Entry(stored.tag.packed())))
            }
            StoreGuard::Table(table) => Some(FoundBucket::in_table(table.present(hash)?, hash)),
        }
    }

    /// Charges a key that had no entry at its take, and returns the tokens charged. By now it may
    /// have one.
    ///
    /// If a key has entered a map since, that of two keys with one hash may be charged.
    fn charge_outside(&self, pin: &StoreGuard<'_, K>, hash: u64, receipt: &Receipt, n: u64) -> u64 {
        let plan = receipt.plan.as_ref();
        let (engine, outside) = (&self.engine, self.outside(hash, plan));
        for _ in 0..MAX_ROUNDS {
            let line = self.parts().lines.of(outside.origin());
            let found = if line.entered == receipt.removals || injected(Fault::EntryUnseen) {
                None
            } else {
                self.any_entry(pin, hash)
            };
            let Some(found) = found else {
                return self.settle_found(pin, outside, plan, Settle::Charge(n));
            };
            drop(line);
            let call = Call { take: Take::OnCredit(n), plan };
            if let Some(done) = engine.charge(found, Some(outside.state()), Now(engine), call) {
                return Receipt::of(call, done.outcome, &done.reading).tokens;
            }
            yield_now();
        }
        self.settle_found(pin, outside, plan, Settle::Charge(n))
    }

    /// Returns the bucket of a receipt, if it is still there.
    pub(crate) fn bucket_of<'a>(
        &'a self,
        pin: &'a StoreGuard<'_, K>,
        receipt: &Receipt,
    ) -> Option<UnlessRemoved<'a, FoundBucket<'a>>> {
        let parts = self.parts();
        let (found, hash) = match (receipt.origin, pin) {
            (Origin::Entry(id), StoreGuard::Map(map, guard)) => {
                let id = EntryId::unpack(id);
                (FoundBucket::Map(SameHash::entry(map, id, guard)?.1, receipt.origin), id.hash)
            }
            (Origin::Inline(hash), StoreGuard::Table(table)) => {
                (FoundBucket::in_table(table.search(hash)?, hash), hash_of(hash))
            }
            (Origin::Overflow(hash), _) => {
                return Some(UnlessRemoved::never(self.outside(hash, receipt.plan.as_ref())));
            }
            (Origin::NoKey, _) => return Some(UnlessRemoved::never(self.no_key_bucket())),
            _ => return None,
        };
        Some(parts.removals.of(hash).since(receipt.removals, found))
    }
}

impl<K: Hash + Eq> Ledger for Keyspace<K> {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        self.sweep_if_due();
        let pin = self.store.pin();
        match (receipt.origin, settle) {
            // Tokens refunded to a bucket that keys share would be granted to other keys.
            (Origin::Overflow(_), Settle::Refund(_) | Settle::Excess(..)) => 0,
            (Origin::Overflow(hash), Settle::Charge(n)) => self.charge_outside(&pin, hash, receipt, n),
            _ => match self.bucket_of(&pin, receipt) {
                Some(bucket) => self.settle_found(&pin, bucket, receipt.plan.as_ref(), settle),
                None => 0,
            },
        }
    }
}
