//! A limit of a layer by its name.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::counts::LimitStats;
use super::dyn_limit::DynLimit;
use super::limit_by::LimitBy;

/// A limit of a layer: its counts, its most refused keys, and its bans. From
/// [`RateLimitLayer::limit`](crate::RateLimitLayer::limit).
pub struct NamedLimit<'a, K>(&'a LimitBy<K>);

impl<'a, K: Hash + Eq + Clone + Send + Sync + 'static> NamedLimit<'a, K> {
    pub(crate) fn of(limits: &'a [Arc<dyn DynLimit>], name: &str) -> Option<NamedLimit<'a, K>> {
        let limits = limits.iter().filter_map(|limit| (&**limit as &dyn Any).downcast_ref());
        limits.into_iter().find(|limit: &&LimitBy<K>| limit.policy.name() == name).map(NamedLimit)
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn stats(&self) -> LimitStats {
        DynLimit::stats(self.0)
    }

    /// Returns up to `n` keys that the limit refused most, with the number of refusals.
    ///
    /// This is a sketch of 512 keys, for logs and dashboards. A count may be too high by the count
    /// of a replaced key, and too low by refusals during another thread's update.
    #[must_use]
    pub fn top_refused(&self, n: usize) -> Vec<(K, u64)> {
        self.0.top.most(n)
    }

    /// Returns the rest of the ban of a key, if it is banned.
    #[must_use]
    pub fn banned(&self, key: &K) -> Option<Duration> {
        self.0.banned(key)
    }

    /// Ends the ban of a key, and forgets its refusals. Returns whether it was banned.
    pub fn unban(&self, key: &K) -> bool {
        self.0.unban(key)
    }
}

impl<K> fmt::Debug for NamedLimit<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedLimit").field(&self.0.policy.name()).finish()
    }
}
