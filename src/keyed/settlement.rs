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
        (bucket, origin): (impl BucketRef, impl FnOnce() -> Option<Origin>),
        plan: Option<PlanTerms>,
        settle: Settle<'_>,
    ) -> u64 {
        let charged = self.engine.settle(bucket, plan, settle);
        if !matches!(settle, Settle::Charge(_)) {
            self.was_given();
            if self.parts().lines.are_made()
                && let Some(origin) = origin()
            {
                self.serve_lines(pin, Some(origin));
            }
        }
        charged.unwrap_or(0)
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
                (FoundBucket::Map(SameHash::entry(map, id, guard)?.1), id.hash)
            }
            (Origin::Inline(hash), StoreGuard::Table(table)) => {
                (FoundBucket::Table(table.search(hash)?), hash_of(hash))
            }
            (Origin::Overflow(_) | Origin::NoKey, _) => {
                let (bucket, hash) = match receipt.origin {
                    Origin::Overflow(hash) => {
                        (parts.overflow.bucket(OverflowSet::of(receipt.plan.as_ref()), hash), hash)
                    }
                    _ => (parts.overflow.no_key(), 0),
                };
                let found = FoundBucket::Map(bucket);
                // No caller removes an overflow bucket.
                let shard = parts.removals.of(hash);
                return Some(shard.since(shard.latest(), found));
            }
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
            Some(bucket) => self.settle_found(&pin, (bucket, || Some(receipt.origin)), receipt.plan, settle),
            None => 0,
        }
    }
}
