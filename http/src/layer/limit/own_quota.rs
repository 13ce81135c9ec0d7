//! The quota of each key that has no bucket of its own, since the limiter has no room for it.
//!
//! Such a key is refused by a bucket that other keys empty. So its refusal says nothing of the key,
//! and a ban needs the key's own measure: would a bucket of its own have refused it as well?

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use papaya::HashMap;

use super::counts::count;
use tollgate::AnyRule;
use tollgate::Clock;
use tollgate::RateLimiter;
use tollgate::Reason;
use tollgate::WhenFull;
use tollgate::Window;

/// The most rules, of plans or of changes, whose keys are counted. Reaching it forgets all counts.
const MAX_RULES: usize = 8;

/// The keys under one rule.
enum OwnLimiter<K> {
    Buckets(RateLimiter<K>),
    Windows(RateLimiter<K, Window>),
}

impl<K> Clone for OwnLimiter<K> {
    fn clone(&self) -> Self {
        match self {
            OwnLimiter::Buckets(limiter) => OwnLimiter::Buckets(limiter.clone()),
            OwnLimiter::Windows(limiter) => OwnLimiter::Windows(limiter.clone()),
        }
    }
}

/// Runs an expression on the limiter of either rule.
macro_rules! either {
    ($own:expr, |$limiter:ident| $run:expr) => {
        match $own {
            OwnLimiter::Buckets($limiter) => $run,
            OwnLimiter::Windows($limiter) => $run,
        }
    };
}

/// Buckets or windows of the keys without room, under each rule in force.
pub(super) struct OwnQuotas<K> {
    limiters: HashMap<AnyRule, OwnLimiter<K>>,
    clock: Clock,
    /// The most keys under each rule.
    max_keys: usize,
    /// Requests that were not counted for want of room.
    uncounted: AtomicU64,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> OwnQuotas<K> {
    pub(super) fn new(clock: Clock, max_keys: usize) -> OwnQuotas<K> {
        OwnQuotas { limiters: HashMap::new(), clock, max_keys, uncounted: AtomicU64::new(0) }
    }

    /// Takes `n` tokens of a key by its own measure. Returns whether it has too few, so that the
    /// key is refused for its own requests.
    pub(super) fn refuses(&self, key: &K, rule: AnyRule, n: u64) -> bool {
        match either!(self.limiter(rule), |limiter| limiter.try_acquire_n(key, n)) {
            Ok(_) => false,
            Err(denied) if denied.reason() == Reason::Full => {
                count(&self.uncounted);
                false
            }
            Err(_) => true,
        }
    }

    fn limiter(&self, rule: AnyRule) -> OwnLimiter<K> {
        let limiters = self.limiters.pin();
        if let Some(made) = limiters.get(&rule) {
            return made.clone();
        }
        if limiters.len() >= MAX_RULES {
            limiters.clear();
        }
        let (clock, keys) = (self.clock.clone(), self.max_keys);
        let made = match rule {
            AnyRule::Quota(quota) => {
                let builder = RateLimiter::builder(quota).clock(clock);
                OwnLimiter::Buckets(builder.max_keys(keys).when_full(WhenFull::Deny).build())
            }
            AnyRule::Window(window) => {
                let builder = RateLimiter::builder(window).clock(clock);
                OwnLimiter::Windows(builder.max_keys(keys).when_full(WhenFull::Deny).build())
            }
        };
        limiters.get_or_insert(rule, made).clone()
    }

    pub(super) fn forget(&self, key: &K) {
        self.limiters.pin().values().for_each(|own| _ = either!(own, |limiter| limiter.remove(key)));
    }

    pub(super) fn keys(&self) -> usize {
        self.limiters.pin().values().map(|own| either!(own, |limiter| limiter.len())).sum()
    }

    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }
}
