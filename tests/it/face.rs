// promise: law
//! One trait for a bucket, a spread bucket, a key of a limiter, and a key of a pinned limiter. A
//! law holds for all four.

use std::sync::Arc;

use tollgate::{
    Denied, Granted, Hold, InvalidRule, Moment, Quota, RateLimiter, Reservation, Snapshot, TokenBucket,
};

use super::{InStore, in_table};
use crate::support::{Time, ns};

pub(crate) trait Face {
    fn try_n(&self, n: u64) -> Result<Granted, Denied>;
    fn try_at(&self, now: Moment, n: u64) -> Result<Granted, Denied>;
    fn up_to(&self, n: u64) -> Granted;
    fn refund(&self, n: u64);
    fn reserve(&self, n: u64) -> Result<Reservation<'_>, Denied>;
    fn reserve_within(&self, n: u64, patience: u64) -> Result<Reservation<'_>, Denied>;
    fn hold(&self, estimate: u64) -> Result<Hold<'_>, Denied>;
    fn peek(&self) -> Snapshot;
    fn now(&self) -> Moment;
    fn set_rule(&self, quota: Quota) -> Result<(), InvalidRule>;
    fn rule(&self) -> Quota;
    fn overruled(&self) -> u64;
}

type Hook = Arc<dyn Fn(&Result<Granted, Denied>) + Send + Sync>;

/// The settings that each face is built with.
#[derive(Clone)]
pub(crate) struct Set {
    pub(crate) quota: Quota,
    pub(crate) headroom: Option<Quota>,
    pub(crate) max_debt: Option<u64>,
    pub(crate) initial: Option<u64>,
    pub(crate) shadow: bool,
    pub(crate) hook: Option<Hook>,
}

impl Set {
    pub(crate) fn of(quota: Quota) -> Set {
        Set { quota, headroom: None, max_debt: None, initial: None, shadow: false, hook: None }
    }
}

macro_rules! set_up {
    ($set:expr, $builder:expr) => {{
        let Set { headroom, max_debt, initial, shadow, hook, .. } = $set.clone();
        let mut builder = $builder.shadow(shadow);
        if let Some(quota) = headroom {
            builder = builder.headroom(quota).expect("there is room for it");
        }
        if let Some(debt) = max_debt {
            builder = builder.max_debt(debt).expect("there is room for it");
        }
        if let Some(tokens) = initial {
            builder = builder.initial_tokens(tokens);
        }
        if let Some(hook) = hook {
            builder = builder.on_decision(move |decision| hook(decision));
        }
        builder
    }};
}

/// Runs a test on two buckets (once for both stores), a key and a pinned key, each on a clock of
/// its own.
pub(crate) fn on_each(set: Set, test: impl Fn(&dyn Face, Time)) {
    for spread in [false, true].into_iter().filter(|_| !in_table()) {
        let (clock, time) = Time::new();
        let builder = set_up!(set, TokenBucket::builder(set.quota)).clock(clock);
        test(&if spread { builder.spread() } else { builder }.build(), time);
    }
    for pinned in [false, true] {
        let (clock, time) = Time::new();
        let limiter = set_up!(set, RateLimiter::stored(set.quota)).clock(clock).build();
        // Other keys have been asked for as well.
        assert!(
            limiter.try_acquire_n(&1, 0).is_ok() && limiter.peek(&2).remaining() > 0 || set.initial.is_some()
        );
        if pinned { test(&ByPin(limiter), time) } else { test(&ByKey(limiter), time) }
    }
}

/// Runs a test as [`on_each`] does, with a quota alone.
pub(crate) fn on_each_of(quota: Quota, test: impl Fn(&dyn Face, Time)) {
    on_each(Set::of(quota), test);
}

const KEY: &u64 = &7;

struct ByKey(RateLimiter<u64>);

struct ByPin(RateLimiter<u64>);

/// Implements [`Face`] by a limiter, a handle with short verbs, a request, and a request whose
/// reservation outlives a pin.
macro_rules! face {
    ($face:ty, $self:ident, $limiter:expr, $handle:expr, $ask:expr, $later:expr, $overruled:expr $(, $key:expr)?) => {
        impl Face for $face {
            fn try_n(&$self, n: u64) -> Result<Granted, Denied> {
                if n == 1 { $handle.try_acquire($($key)?) } else { $handle.try_acquire_n($($key,)? n) }
            }

            fn try_at(&$self, now: Moment, n: u64) -> Result<Granted, Denied> {
                $ask.n(n).at(now).try_acquire()
            }

            fn up_to(&$self, n: u64) -> Granted {
                $ask.n(n).acquire_up_to()
            }

            fn refund(&$self, n: u64) {
                if n == 1 { $ask.refund() } else { $limiter.refund($($key,)? n) }
            }

            fn peek(&$self) -> Snapshot {
                let look = $ask.peek();
                assert_eq!(look, $limiter.peek($($key)?));
                look
            }

            fn reserve(&$self, n: u64) -> Result<Reservation<'_>, Denied> {
                $later.n(n).reserve()
            }

            fn reserve_within(&$self, n: u64, patience: u64) -> Result<Reservation<'_>, Denied> {
                $later.n(n).within(ns(patience)).reserve()
            }

            fn hold(&$self, estimate: u64) -> Result<Hold<'_>, Denied> {
                $later.n(estimate).hold()
            }

            fn now(&$self) -> Moment {
                $limiter.now()
            }

            fn set_rule(&$self, quota: Quota) -> Result<(), InvalidRule> {
                $limiter.set_rule(quota)
            }

            fn rule(&$self) -> Quota {
                $limiter.rule()
            }

            fn overruled(&$self) -> u64 {
                $overruled
            }
        }
    };
}

face!(TokenBucket, self, self, self, self.ask(), self.ask(), self.overruled());
face!(ByKey, self, self.0, self.0, self.0.key(KEY), self.0.key(KEY), self.0.stats().overruled, KEY);
face!(
    ByPin,
    self,
    self.0,
    self.0.pin(),
    self.0.pin().key(KEY),
    self.0.key(KEY),
    self.0.stats().overruled,
    KEY
);
