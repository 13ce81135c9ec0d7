//! The forms in which tollgate is asked: a request value, a plan, a kept part, up to `n` tokens,
//! and a hook. Each has a rule under which it grants as many requests as the plain call.

use std::hint::black_box;

use foldhash::fast::RandomState as FoldHash;
use tollgate::{Plan, Quota, RateLimiter};

use super::bucket::times;
use super::key::Key;
use crate::{Limiter, Setup};

/// A request value of two tokens.
pub(crate) const REQUEST: u8 = 0;
/// Up to a token: the tokens are then as many as the granted requests.
pub(crate) const UP_TO: u8 = 1;
/// A token that leaves half of a double burst to others: a bucket of the single burst.
pub(crate) const KEEP: u8 = 2;
/// A token under a plan, which is the rule of the limiter.
pub(crate) const PLAN: u8 = 3;
/// The plain call of a limiter with an empty hook.
pub(crate) const HOOK: u8 = 4;

/// A limiter that is asked in a form, in the map or in the table.
pub(crate) struct Form<K, const FORM: u8, const INLINE: bool> {
    limiter: RateLimiter<K, Quota, FoldHash>,
    /// For `PLAN` only: a limiter that has plans evicts later.
    plan: Option<Plan>,
}

impl<K: Key, const FORM: u8, const INLINE: bool> Form<K, FORM, INLINE> {
    /// Tokens of a request.
    const TOKENS: u64 = if FORM == REQUEST { 2 } else { 1 };

    /// Asks once, and returns the granted tokens.
    #[inline(always)]
    fn ask(&self, key: &K) -> u64 {
        let limiter = black_box(&self.limiter);
        match FORM {
            REQUEST => 2 * u64::from(limiter.key(key).n(2).try_acquire().is_ok()),
            UP_TO => limiter.key(key).acquire_up_to().tokens(),
            KEEP => limiter.key(key).keep(50).try_acquire().is_ok().into(),
            PLAN => {
                let plan = self.plan.as_ref().expect("the form has a plan");
                limiter.key(key).under(plan).try_acquire().is_ok().into()
            }
            _ => limiter.try_acquire(key).is_ok().into(),
        }
    }
}

impl<K: Key, const FORM: u8, const INLINE: bool> Limiter<K> for Form<K, FORM, INLINE> {
    fn new(setup: Setup) -> Self {
        let rule = match FORM {
            KEEP => setup.quota.burst(2 * setup.quota.capacity()),
            _ => times(setup.quota, Self::TOKENS),
        };
        let builder = RateLimiter::builder(rule).hasher(FoldHash::default());
        let builder = if FORM == HOOK { builder.on_decision(|_| ()) } else { builder };
        let limiter = match INLINE {
            true => builder.max_keys(setup.keys).inline().unwrap().build(),
            false => builder.presize(setup.keys).unwrap().max_keys(setup.keys).build(),
        };
        let plan = (FORM == PLAN).then(|| limiter.plan(rule).expect("the rule of the limiter fits its word"));
        Form { limiter, plan }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.ask(key) == Self::TOKENS
    }

    fn count_granted(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| self.ask(key)).sum::<u64>() / Self::TOKENS
    }

    fn is_bounded(&self) -> bool {
        true
    }
}
