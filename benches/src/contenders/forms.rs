//! The forms in which tollgate is asked: a request value, a plan, a kept part, up to `n` tokens, and
//! a hook. Each has a rule under which it grants as many requests as the plain call.

use std::hint::black_box;

use foldhash::fast::RandomState as FoldHash;
use tollgate::{Quota, RateLimiter};

use super::bucket::times;
use super::key::Key;
use crate::{Limiter, Setup};

type Map<K> = RateLimiter<K, Quota, FoldHash>;

/// A limiter that is asked in a form, in the map or in the table.
pub(crate) struct Form<K: Key, F: Ask<K>, const INLINE: bool> {
    limiter: Map<K>,
    plan: F::Plan,
}

/// A form: its rule, and its call.
pub(crate) trait Ask<K: Key>: Send + Sync {
    /// Tokens of a request.
    const TOKENS: u64 = 1;
    /// The plan of a request, or nothing: a limiter that has plans evicts later.
    type Plan: Send + Sync;

    fn plan(limiter: &Map<K>) -> Self::Plan;

    fn rule(quota: Quota) -> Quota {
        times(quota, Self::TOKENS)
    }

    fn with_hook() -> bool {
        false
    }

    /// Asks once, and returns the tokens that were granted.
    fn ask(limiter: &Map<K>, plan: &Self::Plan, key: &K) -> u64;
}

impl<K: Key, F: Ask<K>, const INLINE: bool> Limiter<K> for Form<K, F, INLINE> {
    fn new(setup: Setup) -> Self {
        let builder = RateLimiter::builder(F::rule(setup.quota)).hasher(FoldHash::default());
        let builder = if F::with_hook() { builder.on_decision(|_| ()) } else { builder };
        let limiter = match INLINE {
            true => builder.inline(setup.keys).unwrap().build(),
            false => builder.presize(setup.keys).unwrap().max_keys(setup.keys).build(),
        };
        Form { plan: F::plan(&limiter), limiter }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        F::ask(&self.limiter, &self.plan, key) == F::TOKENS
    }

    fn count_granted(&self, keys: &[K]) -> u64 {
        let granted: u64 = keys.iter().map(|key| F::ask(black_box(&self.limiter), &self.plan, key)).sum();
        granted / F::TOKENS
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

/// A request value of two tokens.
pub(crate) struct Request;

impl<K: Key> Ask<K> for Request {
    const TOKENS: u64 = 2;
    type Plan = ();

    fn plan(_: &Map<K>) {}

    #[inline(always)]
    fn ask(limiter: &Map<K>, (): &(), key: &K) -> u64 {
        2 * u64::from(limiter.key(key).n(2).try_acquire().is_ok())
    }
}

/// Two tokens, or the one that is left.
pub(crate) struct UpTo;

impl<K: Key> Ask<K> for UpTo {
    const TOKENS: u64 = 2;
    type Plan = ();

    fn plan(_: &Map<K>) {}

    #[inline(always)]
    fn ask(limiter: &Map<K>, (): &(), key: &K) -> u64 {
        limiter.key(key).n(2).acquire_up_to().tokens()
    }
}

/// A token that leaves half of a double burst to others: a bucket of the single burst.
pub(crate) struct Keep;

impl<K: Key> Ask<K> for Keep {
    type Plan = ();

    fn plan(_: &Map<K>) {}

    fn rule(quota: Quota) -> Quota {
        quota.burst(2 * quota.capacity())
    }

    #[inline(always)]
    fn ask(limiter: &Map<K>, (): &(), key: &K) -> u64 {
        limiter.key(key).keep(50).try_acquire().is_ok().into()
    }
}

/// A token under a plan, which is the rule of the limiter.
pub(crate) struct Plan;

impl<K: Key> Ask<K> for Plan {
    type Plan = tollgate::Plan;

    fn plan(limiter: &Map<K>) -> tollgate::Plan {
        limiter.plan(limiter.rule()).expect("the rule of the limiter fits its word")
    }

    #[inline(always)]
    fn ask(limiter: &Map<K>, plan: &tollgate::Plan, key: &K) -> u64 {
        limiter.key(key).under(plan).try_acquire().is_ok().into()
    }
}

/// The plain call of a limiter with an empty hook.
pub(crate) struct Hook;

impl<K: Key> Ask<K> for Hook {
    type Plan = ();

    fn plan(_: &Map<K>) {}

    fn with_hook() -> bool {
        true
    }

    #[inline(always)]
    fn ask(limiter: &Map<K>, (): &(), key: &K) -> u64 {
        limiter.try_acquire(key).is_ok().into()
    }
}
