//! Settlements: by the key, and by a receipt that is valid without the key.

use std::hash::Hash;

use crate::bucket::atomic::BucketRef;
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::keyed::id::EntryId;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::OverflowSet;
use crate::keyed::removals::UnlessRemoved;
use crate::keyed::same_hash::SameHash;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::keyed::table::hash_of;
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;

impl<K: Hash + Eq> Keyspace<K> {
    /// Settles a take on the bucket that was found, and returns the tokens charged. Tokens that
    /// come back go to the callers in line.
    pub(crate) fn settle_found(
        &self,
        pin: &StoreGuard<'_, K>,
        bucket: impl BucketRef,
        plan: Option<PlanTerms>,
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
                let bucket = parts.overflow.bucket(OverflowSet::of(receipt.plan.as_ref()), hash);
                return Some(UnlessRemoved::never(FoundBucket::Map(bucket, receipt.origin)));
            }
            (Origin::NoKey, _) => return Some(UnlessRemoved::never(self.no_key_bucket())),
            _ => return None,
        };
        Some(parts.removals.of(hash).since(receipt.removals, found))
    }
}

impl<K: Hash + Eq> Ledger for Keyspace<K> {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        let shared = matches!(receipt.origin, Origin::Overflow(_));
        self.sweep_if_due();
        let pin = self.store.pin();
        match self.bucket_of(&pin, receipt) {
            // Tokens refunded to a bucket that keys share would be granted to other keys.
            Some(_) if shared && matches!(settle, Settle::Refund(_) | Settle::Excess(..)) => 0,
            Some(bucket) => self.settle_found(&pin, bucket, receipt.plan, settle),
            None => 0,
        }
    }
}
