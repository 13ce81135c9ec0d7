//! tollgate, in both modes, on any store.

use std::time::Duration;

use tollgate_distributed::{AnyStore, DistributedBuilder, DistributedLimiter};

use crate::limit::{Failure, Limit, Setup};

/// The most connections of a store: those of MariaDB.
const CONNECTIONS: usize = 4;

/// Our limiter.
pub struct Ours(pub DistributedLimiter<String, AnyStore>);

impl Ours {
    /// Makes a limiter in a mode, `leased` or `exact`, and connects it.
    ///
    /// # Errors
    ///
    /// There is no such store, or its table cannot be made.
    pub async fn new(mode: &str, setup: &Setup) -> Result<Ours, Failure> {
        // A loaded machine is no outage.
        let deadline = Duration::from_secs(10);
        Ours::with(mode, setup, |builder| builder.deadline(deadline)).await
    }

    /// Makes a limiter with further options.
    ///
    /// # Errors
    ///
    /// As [`new`](Ours::new).
    pub async fn with<F>(mode: &str, setup: &Setup, options: F) -> Result<Ours, Failure>
    where
        F: FnOnce(DistributedBuilder<String, AnyStore>) -> DistributedBuilder<String, AnyStore>,
    {
        let store = AnyStore::open(&setup.url)?;
        store.migrate().await?;
        let builder = options(DistributedLimiter::builder(setup.quota, store).name(&setup.name));
        let limiter = if mode == "exact" { builder.exact() } else { builder }.build()?;
        // Calls take turns on the connections of a store, which are made at their first call.
        for _ in 0..CONNECTIONS {
            let _ = limiter.peek("nothing").await;
        }
        Ok(Ours(limiter))
    }
}

impl Limit for Ours {
    async fn ask(&self, key: &str) -> bool {
        self.0.ask(key).await.is_ok()
    }

    fn calls(&self) -> [u64; 2] {
        let stats = self.0.stats();
        assert_eq!(stats.by_fallback + stats.by_policy, 0, "the store answers");
        [stats.calls_answered + stats.calls_late, stats.ops]
    }
}
