//! The bucket of a key as the target of a request: with a guard of its own, or with one that serves
//! many calls.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::task::Waker;

use crate::bucket::engine::{Done, Engine};
use crate::bucket::line::caller_line::LineTurn;
use crate::bucket::receipt::Receipt;
use crate::bucket::reservation::Ledger;
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::store::StoreGuard;
use crate::limiter::asked::{Asked, Patience, Target};
use crate::limiter::hook::DecisionHook;
use crate::limiter::inner::Inner;
use crate::limiter::key_call::{CallOptions, KeyCall};
use crate::limiter::rule::Rule;
use crate::limiter::verbs::Verb;
use crate::limiter::waiting::{LineTicket, Promise};
use crate::time::jitter::Jitter;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::verb::{Call, Reserve, Take};

/// The bucket of a key, from [`RateLimiter::key`](crate::RateLimiter::key).
pub struct Keyed<'a, K, Q: ?Sized, R, S> {
    pub(super) inner: &'a Inner<K, S>,
    pub(super) key: &'a Q,
    pub(super) rule: PhantomData<R>,
}

/// The bucket of a key under a guard that the caller holds, from
/// [`Pinned::key`](crate::Pinned::key).
pub struct PinnedKey<'a, K, Q: ?Sized, R, S> {
    pub(super) pin: &'a StoreGuard<'a, K>,
    pub(super) bucket: Keyed<'a, K, Q, R, S>,
}

/// A key of a limiter, and the way to its guard.
trait KeyTarget<'a>: Copy {
    type Key: Hash + Eq + Send + Sync + 'a;
    type Query: ToKey<Self::Key> + ?Sized + 'a;
    type Rule: Rule;
    type Hasher: BuildHasher + Send + Sync + 'a;

    fn keyed(self) -> Keyed<'a, Self::Key, Self::Query, Self::Rule, Self::Hasher>;

    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer;

    /// Runs `run` under a guard.
    fn with_guard<T>(self, run: impl FnOnce(&StoreGuard<'_, Self::Key>) -> T) -> T;
}

impl<'a, K, Q, R, S> KeyTarget<'a> for Keyed<'a, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher + Send + Sync,
{
    type Key = K;
    type Query = Q;
    type Rule = R;
    type Hasher = S;

    #[inline(always)]
    fn keyed(self) -> Keyed<'a, K, Q, R, S> {
        self
    }

    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        self.inner.decide::<R, V, Q>(self.key, verb, options)
    }

    fn with_guard<T>(self, run: impl FnOnce(&StoreGuard<'_, K>) -> T) -> T {
        run(&self.inner.keyspace.store.pin())
    }
}

impl<'a, K, Q, R, S> KeyTarget<'a> for PinnedKey<'a, K, Q, R, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher + Send + Sync,
{
    type Key = K;
    type Query = Q;
    type Rule = R;
    type Hasher = S;

    #[inline(always)]
    fn keyed(self) -> Keyed<'a, K, Q, R, S> {
        self.bucket
    }

    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        let Keyed { inner, key, .. } = self.bucket;
        inner.decide_pinned::<R, V, Q>(self.pin, KeyQuery::new(&inner.hasher, key), verb, options)
    }

    fn with_guard<T>(self, run: impl FnOnce(&StoreGuard<'_, K>) -> T) -> T {
        run(self.pin)
    }
}

/// Runs `run` on a call for the key of a target.
fn with_call<'a, B: KeyTarget<'a>, T>(
    target: B,
    options: CallOptions<'_>,
    run: impl FnOnce(KeyCall<'_, B::Key, B::Query, B::Hasher>) -> T,
) -> T {
    let Keyed { inner, key, .. } = target.keyed();
    target.with_guard(|pin| run(inner.call(pin, key, options)))
}

impl<'a, B: KeyTarget<'a>> Target<'a> for B {
    #[inline(always)]
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        KeyTarget::decide(self, verb, options)
    }

    fn run(self, take: Take, options: CallOptions<'_>) -> (Call, Result<Done, Denied>) {
        with_call(self, options, |call| call.run(take))
    }

    fn peek(self, take: Take, options: CallOptions<'_>) -> Snapshot {
        with_call(self, options, |call| call.peek(take))
    }

    fn look(self, take: Take, options: CallOptions<'_>) -> Result<(), Denied> {
        let Inner { keyspace, hook, .. } = self.keyed().inner;
        with_call(self, options, |call| {
            let decision = call.look(take);
            if keyspace.engine.may_begin(&decision) && !call.is_held() {
                return Ok(());
            }
            hook.preview(take.tokens(), decision)
        })
    }

    fn receive(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        with_call(self, options, |call| call.receive(take))
    }

    fn undo(self, receipt: &Receipt) {
        with_call(self, CallOptions::NOW, |call| call.undo(receipt));
    }

    fn refund(self, n: u64, options: CallOptions<'_>) {
        with_call(self, options, |call| call.refund(n));
    }

    fn hold(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        with_call(self, options, |call| call.receive_by_entry(take))
    }

    fn reserve(self, wanted: Reserve, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
        with_call(self, options, |call| call.reserve(wanted))
    }

    fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
        &self.keyed().inner.keyspace
    }

    fn join(self, patience: Patience, options: CallOptions<'_>, waker: &Waker) -> Result<Promise, Denied> {
        with_call(self, options, |call| call.join(patience, waker))
    }

    fn look_at_turn(self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.keyed().inner.keyspace.look_at_turn(ticket.line, &ticket.waits, fired, waker)
    }

    fn leave_line(self, ticket: &LineTicket) {
        self.keyed().inner.keyspace.leave_line(ticket.line, &ticket.waits);
    }

    fn granted_in_line(self, ticket: &LineTicket) -> Granted {
        self.keyed().inner.keyspace.granted_in_line(ticket.line, ticket.n)
    }

    fn engine(self) -> &'a Engine {
        &self.keyed().inner.keyspace.engine
    }

    fn hook(self) -> &'a DecisionHook {
        &self.keyed().inner.hook
    }

    fn jitter(self) -> Jitter {
        self.keyed().inner.jitter
    }
}

macro_rules! bucket_of_a_key {
    ($($name:ident)*) => { $(
        impl<'a, K, Q, R, S> Asked<'a> for $name<'a, K, Q, R, S>
        where
            K: Hash + Eq + Send + Sync,
            Q: ToKey<K> + ?Sized,
            R: Rule,
            S: BuildHasher + Send + Sync,
        {
            type Rule = R;
        }

        impl<K, Q: ?Sized, R, S> Clone for $name<'_, K, Q, R, S> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<K, Q: ?Sized, R, S> Copy for $name<'_, K, Q, R, S> {}

        /// Never prints the key.
        impl<K, Q: ?Sized, R, S> fmt::Debug for $name<'_, K, Q, R, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )* };
}
bucket_of_a_key!(Keyed PinnedKey);
