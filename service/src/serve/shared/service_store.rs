//! The store of the service, of any engine and layout.

use std::time::Duration;

use tollgate::Quota;
#[cfg(feature = "redis")]
use tollgate_distributed::IncrStore;
use tollgate_distributed::{Amount, AnyStore, Lanes, Op, Spec, Store, StoreError};

/// The store of the counts.
#[derive(Clone, Debug)]
pub(super) enum ServiceStore {
    Any(AnyStore),
    /// The keys of envoyproxy/ratelimit.
    #[cfg(feature = "redis")]
    Incr(IncrStore),
    #[cfg(test)]
    Test(super::test_store::TestStore),
}

/// Does the same with the store of each kind.
macro_rules! on_each {
    ($store:expr, $of:ident => $does:expr) => {
        match $store {
            ServiceStore::Any($of) => $does,
            #[cfg(feature = "redis")]
            ServiceStore::Incr($of) => $does,
            #[cfg(test)]
            ServiceStore::Test($of) => $does,
        }
    };
}

impl ServiceStore {
    /// Creates the tables, if the store has tables and they are missing.
    pub(super) async fn migrate(&self) -> Result<(), StoreError> {
        match self {
            ServiceStore::Any(store) => store.migrate().await,
            #[cfg(feature = "redis")]
            ServiceStore::Incr(_) => Ok(()),
            #[cfg(test)]
            ServiceStore::Test(_) => Ok(()),
        }
    }

    /// Returns whether the store answers, by the call of a probe.
    pub(super) async fn answers(&self) -> bool {
        let Ok(spec) = Spec::new(Quota::per_second(1_000_000), 0) else { return false };
        let key = self.probe_key(0);
        let amount = Amount { min: 1, max: 1, ..Amount::default() };
        self.acquire(&mut [Op::new(&key, spec, amount)]).await.is_ok()
    }

    /// Deletes the rows that have been over for a time.
    pub(super) async fn clean_up(&self, over_for: Duration) -> Result<u64, StoreError> {
        match self {
            ServiceStore::Any(store) => store.clean_up(over_for).await,
            #[cfg(feature = "redis")]
            ServiceStore::Incr(_) => Ok(0),
            #[cfg(test)]
            ServiceStore::Test(_) => Ok(0),
        }
    }
}

impl Store for ServiceStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        on_each!(self, store => store.acquire(ops).await)
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        on_each!(self, store => store.acquire_all(ops).await)
    }

    fn lanes(&self) -> Lanes {
        on_each!(self, store => store.lanes())
    }

    fn lane(&self, key: &[u8]) -> u32 {
        on_each!(self, store => store.lane(key))
    }

    fn lane_of(&self, op: &Op<'_>) -> u32 {
        on_each!(self, store => store.lane_of(op))
    }

    fn probe_key(&self, lane: u32) -> Vec<u8> {
        on_each!(self, store => store.probe_key(lane))
    }
}
