//! The bucket of a key as the target of a request: with a guard of its own, or with one that serves
//! many calls.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;
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
use crate::limiter::key_call::KeyCall;
use crate::limiter::options::CallOptions;
use crate::limiter::rule::Rule;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::verbs::Verb;
use crate::time::jitter::Jitter;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::verb::{Call, Reserve, Take};

/// The bucket of a key, from [`RateLimiter::key`](crate::RateLimiter::key).
pub struct Keyed<'a, 'k, K, Q: ?Sized, R, S> {
    pub(super) inner: &'a Inner<K, S>,
    /// The handle of `inner`, for guards that own one.
    pub(super) owner: &'a Arc<Inner<K, S>>,
    pub(super) key: &'k Q,
    pub(super) rule: PhantomData<R>,
}

/// The bucket of a key under a guard that the caller holds, from
/// [`Pinned::key`](crate::Pinned::key).
pub struct PinnedKey<'a, 'k, K, Q: ?Sized, R, S> {
    pub(super) pin: &'a StoreGuard<'a, K>,
    pub(super) bucket: Keyed<'a, 'k, K, Q, R, S>,
}

impl<'a, K, Q, R, S> Keyed<'a, '_, K, Q, R, S>
where
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher,
{
    fn inner(self) -> &'a Inner<K, S> {
        self.inner
    }

    #[inline(always)]
    fn decide_once<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        self.inner.decide::<R, V, Q>(self.key, verb, options)
    }

    /// Runs `run` on a call for the key, under a guard.
    fn with_call<T>(self, options: CallOptions<'_>, run: impl FnOnce(KeyCall<'_, K, Q, S>) -> T) -> T {
        run(self.inner.call(&self.inner.keyspace.store.pin(), self.key, options))
    }
}

impl<'a, K, Q, R, S> PinnedKey<'a, '_, K, Q, R, S>
where
    K: Hash + Eq,
    Q: ToKey<K> + ?Sized,
    R: Rule,
    S: BuildHasher,
{
    fn inner(self) -> &'a Inner<K, S> {
        self.bucket.inner
    }

    #[inline(always)]
    fn decide_once<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
        let Keyed { inner, key, .. } = self.bucket;
        inner.decide_pinned::<R, V, Q>(self.pin, KeyQuery::new(&inner.hasher, key), verb, options)
    }

    /// Runs `run` on a call for the key, under the guard.
    fn with_call<T>(self, options: CallOptions<'_>, run: impl FnOnce(KeyCall<'_, K, Q, S>) -> T) -> T {
        run(self.bucket.inner.call(self.pin, self.bucket.key, options))
    }
}

macro_rules! bucket_of_a_key {
    ($($name:ident)*) => { $(
        impl<'a, K, Q, R, S> Target<'a> for $name<'a, '_, K, Q, R, S>
        where
            K: Hash + Eq + Send + Sync,
            Q: ToKey<K> + ?Sized,
            R: Rule,
            S: BuildHasher + Send + Sync,
        {
            #[inline(always)]
            fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer {
                self.decide_once(verb, options)
            }

            fn run(self, take: Take, options: CallOptions<'_>) -> (Call, Result<Done, Denied>) {
                self.with_call(options, |call| call.run(take))
            }

            fn peek(self, take: Take, options: CallOptions<'_>) -> Snapshot {
                self.with_call(options, |call| call.peek(take))
            }

            fn look(self, take: Take, options: CallOptions<'_>) -> Result<(), Denied> {
                let Inner { keyspace, hook, .. } = self.inner();
                self.with_call(options, |call| {
                    let decision = call.look(take);
                    if keyspace.engine.may_begin(&decision) && !call.is_held() {
                        return Ok(());
                    }
                    hook.preview(take.n(), decision)
                })
            }

            fn receive(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
                self.with_call(options, |call| call.receive(take))
            }

            fn undo(self, receipt: &Receipt) {
                self.with_call(CallOptions::NOW, |call| call.undo(receipt));
            }

            fn refund(self, n: u64, options: CallOptions<'_>) {
                self.with_call(options, |call| call.refund(n));
            }

            fn hold(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
                self.with_call(options, |call| call.receive_by_entry(take))
            }

            fn reserve(self, wanted: Reserve, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied> {
                self.with_call(options, |call| call.reserve(wanted))
            }

            fn ledger(self) -> &'a (dyn Ledger + Send + Sync) {
                &self.inner().keyspace
            }

            fn join(self, patience: Patience, options: CallOptions<'_>, waker: &Waker) -> Result<Promise, Denied> {
                self.with_call(options, |call| call.join(patience, waker))
            }

            fn look_at_turn(self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
                self.inner().keyspace.look_at_turn(ticket.line, &ticket.waits, fired, waker)
            }

            fn leave_line(self, ticket: &LineTicket) {
                self.inner().keyspace.leave_line(ticket.line, &ticket.waits);
            }

            fn granted_in_line(self, ticket: &LineTicket) -> Granted {
                self.inner().keyspace.granted_in_line(ticket.line, ticket.n)
            }

            fn engine(&self) -> &Engine {
                &self.inner().keyspace.engine
            }

            fn hook(&self) -> &DecisionHook {
                &self.inner().hook
            }

            fn jitter(self) -> Jitter {
                self.inner().jitter
            }
        }

        impl<'a, K, Q, R, S> Asked<'a> for $name<'a, '_, K, Q, R, S>
        where
            K: Hash + Eq + Send + Sync,
            Q: ToKey<K> + ?Sized,
            R: Rule,
            S: BuildHasher + Send + Sync,
        {
            type Rule = R;
        }

        impl<K, Q: ?Sized, R, S> Clone for $name<'_, '_, K, Q, R, S> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<K, Q: ?Sized, R, S> Copy for $name<'_, '_, K, Q, R, S> {}

        /// Never prints the key.
        impl<K, Q: ?Sized, R, S> fmt::Debug for $name<'_, '_, K, Q, R, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )* };
}
bucket_of_a_key!(Keyed PinnedKey);
