//! The store that several proxies share, so that they hold one limit.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::{AnyRule, Quota, Window};
use tollgate_distributed::{
    AnyStore, DistributedLimiter, DistributedStats, OnOutage, SharedDigest, SharedRule, StoreError,
    StoreErrorKind,
};
use tollgate_http::AnyLimiter;

use super::keys::Key;
use crate::config::settings::{Outage, Store};
use crate::config::store::open;

/// A limiter on the store of a fleet.
type StoreLimiter<R> = DistributedLimiter<Key, Arc<AnyStore>, R>;

/// A limiter that the proxies of a fleet share.
#[derive(Clone)]
pub(crate) enum SharedLimiter {
    Quotas(StoreLimiter<Quota>),
    Windows(StoreLimiter<Window>),
}

/// Does the same with a limiter of either kind.
macro_rules! either {
    ($shared:expr, $limiter:ident => $does:expr) => {
        match $shared {
            SharedLimiter::Quotas($limiter) => $does,
            SharedLimiter::Windows($limiter) => $does,
        }
    };
}

impl SharedLimiter {
    pub(super) fn any(&self) -> AnyLimiter<Key> {
        either!(self, limiter => limiter.clone().into())
    }

    pub(super) fn rule(&self) -> AnyRule {
        either!(self, limiter => limiter.rule().into())
    }

    /// Puts another rule of the same kind in force.
    pub(super) fn set_rule(&self, rule: AnyRule) -> Result<(), String> {
        let set = match (self, rule) {
            (SharedLimiter::Quotas(limiter), AnyRule::Quota(quota)) => limiter.set_rule(quota),
            (SharedLimiter::Windows(limiter), AnyRule::Window(window)) => limiter.set_rule(window),
            _ => return Err(format!("{rule} is no rule of the kind of {}", self.rule())),
        };
        set.map_err(|why| why.to_string())
    }

    /// Returns the tokens of a key that this process knows of.
    pub(super) fn left(&self, key: &Key) -> u64 {
        either!(self, limiter => limiter.known(key).remaining())
    }

    pub(crate) fn stats(&self) -> DistributedStats {
        either!(self, limiter => limiter.stats())
    }

    async fn shutdown(&self) {
        either!(self, limiter => limiter.shutdown().await);
    }
}

/// The longest name of a limiter.
const LONGEST_NAME: usize = 64;
/// From one attempt to create the tables to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest wait for the tables at the start, and for tokens that are given back at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// The open store of a fleet.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub(crate) settings: Store,
    store: Arc<AnyStore>,
}

/// Two are the same if they have the same settings and connection.
impl PartialEq for Fleet {
    fn eq(&self, other: &Fleet) -> bool {
        self.settings == other.settings && Arc::ptr_eq(&self.store, &other.store)
    }
}

impl Fleet {
    /// Opens the store of these settings, or goes on with the one that is open. A server that does
    /// not answer is no error.
    pub(crate) fn open(settings: Option<&Store>, before: Option<&Fleet>) -> Result<Option<Fleet>, String> {
        let Some(settings) = settings else { return Ok(None) };
        let store = match before.filter(|before| before.settings.url == settings.url) {
            Some(before) => before.store.clone(),
            None => {
                Arc::new(open(&settings.url).map_err(|why| format!("cannot open {}: {why}", settings.url))?)
            }
        };
        Ok(Some(Fleet { settings: settings.clone(), store }))
    }

    /// Creates the tables of the store, if it has tables and they are missing. While its server
    /// does not answer, it is asked again in the background.
    pub(crate) async fn prepare(self) {
        let no_answer =
            |_| Err(StoreError::new(StoreErrorKind::Unknown, format!("no answer within {PATIENCE:?}")));
        let outcome = timeout(PATIENCE, self.store.migrate()).await.unwrap_or_else(no_answer);
        let Err(error) = outcome else { return };
        self.warn(&error);
        if error.kind() != StoreErrorKind::Permanent {
            tokio::spawn(self.prepare_later());
        }
    }

    async fn prepare_later(self) {
        loop {
            sleep(AGAIN).await;
            match self.store.migrate().await {
                Ok(()) => return,
                Err(error) if error.kind() == StoreErrorKind::Permanent => return self.warn(&error),
                Err(_) => {}
            }
        }
    }

    fn warn(&self, error: &StoreError) {
        tracing::warn!(store = %self.settings.url, "the tables of the limits: {error}");
    }

    /// Returns the limiter of a limit of this name.
    pub(crate) fn limiter(&self, name: &str, rule: AnyRule) -> Result<SharedLimiter, String> {
        match rule {
            AnyRule::Quota(quota) => Ok(SharedLimiter::Quotas(self.limiter_of(name, quota)?)),
            AnyRule::Window(window) => Ok(SharedLimiter::Windows(self.limiter_of(name, window)?)),
        }
    }

    fn limiter_of<R: SharedRule>(&self, name: &str, rule: R) -> Result<StoreLimiter<R>, String> {
        let Store { deadline, exact, on_outage, share, .. } = self.settings;
        let builder = DistributedLimiter::builder(rule, self.store.clone());
        let builder = if exact { builder.exact() } else { builder };
        let policy = match on_outage {
            Outage::Local => OnOutage::Local { share },
            Outage::Deny => OnOutage::Deny,
            Outage::Allow => OnOutage::Allow,
        };
        let builder = builder.name(self.name_of(name)).deadline(deadline).on_outage(policy);
        builder.build().map_err(|why| format!("limit {name}: {why}"))
    }

    /// Returns the name of a limit in the store. One that is too long, or has a sign of the store's
    /// own, is replaced by a digest.
    fn name_of(&self, limit: &str) -> String {
        let name = format!("{}/{limit}", self.settings.name);
        match name.len() <= LONGEST_NAME && !limit.contains(':') && !limit.starts_with('#') {
            true => name,
            false => format!("{}/#{}", self.settings.name, SharedDigest::of(limit.as_bytes())),
        }
    }

    /// Returns whether the buckets of two are the same.
    pub(crate) fn has_buckets_of(&self, other: &Fleet) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && self.settings.name == other.settings.name
    }
}

/// Gives the tokens of leases back, as far as the store takes them soon.
pub(crate) async fn give_back(limiters: impl Iterator<Item = SharedLimiter>) {
    let mut ends: JoinSet<()> = JoinSet::new();
    for limiter in limiters {
        ends.spawn(async move { limiter.shutdown().await });
    }
    let _ = timeout(PATIENCE, async { while ends.join_next().await.is_some() {} }).await;
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::config::settings::StoreUrl;

    fn fleet() -> Fleet {
        let settings = Store {
            url: StoreUrl("sqlite::memory:".to_owned()),
            name: "edge".to_owned(),
            exact: false,
            deadline: PATIENCE,
            on_outage: Outage::Deny,
            share: 1.0,
        };
        Fleet { settings, store: Arc::new(AnyStore::open("sqlite::memory:").expect("there is memory")) }
    }

    #[tokio::test]
    async fn the_tokens_of_leases_are_given_back() {
        let limiter = fleet().limiter_of("a", Quota::per_second(100_000)).expect("the store counts it");
        let key = Key::Address([192, 0, 2, 1].into());
        let held = || {
            let stats = limiter.stats();
            (stats.tokens_granted - stats.tokens_used - stats.tokens_returned, stats.tokens_returned)
        };
        while held().0 < 100 {
            assert!(limiter.ask(&key).await.is_ok());
        }
        give_back(std::iter::once(SharedLimiter::Quotas(limiter.clone()))).await;
        let (held, returned) = held();
        assert!(held == 0 && returned >= 100, "{held} held, {returned} returned");
    }

    #[test]
    fn each_limit_has_a_name_of_its_own_in_the_store() {
        let (fleet, long) = (fleet(), "x".repeat(60));
        let names = ["default", "/login", "/v1:batch", "#one", &long].map(|limit| fleet.name_of(limit));
        assert_eq!(names[..2], ["edge/default", "edge//login"]);
        for (index, name) in names.iter().enumerate() {
            assert!(name.len() <= LONGEST_NAME && !name.contains(':'), "{name}");
            assert!(names[..index].iter().all(|other| other != name), "{name}");
        }
        // No limit is named as the digest of another one.
        let digest = names[2].strip_prefix("edge/").expect("it begins so");
        assert_ne!(fleet.name_of(digest), names[2]);
    }
}
