//! The fast path of a take on a key's bucket, for every form of a call, and the slow path after it.
//!
//! The attempt is inlined into the caller. A function out of line takes the parts of a request as
//! scalars: a request in memory, by reference or by value, put 12 to 27 stores before each attempt.

use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::{Miss, ReadClock};
use crate::bucket::engine::{At, Now};
use crate::fault::{Fault, injected};
use crate::keyed::attempt::{attempt, attempt_in_store, attempt_under_guard};
use crate::keyed::entry::KeyEntry;
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::protocol::Entry;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::limiter::asked::{CallOptions, Site};
use crate::limiter::inner::Inner;
use crate::limiter::keyed::KeySite;
use crate::limiter::rule::Rule;
use crate::limiter::verbs::{Verb, decision};
use crate::rule::counts::Counting;
use crate::time::clock::Moment;
use crate::word::by_refill::{BUCKETS, ByRefill, WINDOWS, attempt_by};
use crate::word::plan::PlanTerms;
use crate::word::verb::Call;

impl<K, S> Inner<K, S> {
    /// Returns the way of counting by which attempts decide, under the plan if there is one.
    #[inline(always)]
    fn attempted(&self, plan: Option<&PlanTerms>) -> Option<Counting> {
        match plan {
            Some(plan) if !plan.decides_for(self.keyspace.id) => None,
            _ => self.fast_path,
        }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    /// Decides on a key's bucket, by a verb, under the options of the call.
    #[inline(always)]
    pub(crate) fn decide<R: Rule, V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        verb: V,
        CallOptions { plan, now }: CallOptions<'_>,
    ) -> V::Answer {
        let engine = &self.keyspace.engine;
        match now {
            None => self.decide_by::<R, V, Q>(key, verb, Now(engine), plan, now),
            Some(at) => self.decide_by::<R, V, Q>(key, verb, At(engine, at), plan, now),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn decide_by<R: Rule, V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        verb: V,
        read: impl ReadClock,
        plan: Option<&PlanTerms>,
        now: Option<Moment>,
    ) -> V::Answer {
        let (take, counts) = (verb.take(), self.keyspace.engine.source.counts());
        let store = &self.keyspace.store;
        let (key, missed) = attempt_by!(
            R::WORDS,
            self.attempted(plan),
            counts,
            |by| match plan {
                None =>
                    attempt_in_store!(store, KeyQuery::new(&self.hasher, key), read, take, by, |done| verb
                        .answer(done)),
                Some(plan) => {
                    attempt_in_store!(
                        store,
                        KeyQuery::new(&self.hasher, key),
                        read,
                        take,
                        by.under(plan),
                        |done| verb.answer(done)
                    )
                }
            },
            (KeyQuery::new(&self.hasher, key), Miss::Untried)
        );
        self.decide_slowly::<R, V, Q>(key, missed, verb, plan, now)
    }

    /// Decides on a key's bucket under a guard that the caller holds.
    #[inline(always)]
    pub(crate) fn decide_pinned<R: Rule, V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        verb: V,
        CallOptions { plan, now }: CallOptions<'_>,
    ) -> V::Answer {
        let engine = &self.keyspace.engine;
        match now {
            None => self.decide_pinned_by::<R, V, Q>(pin, key, verb, Now(engine), plan, now),
            Some(at) => self.decide_pinned_by::<R, V, Q>(pin, key, verb, At(engine, at), plan, now),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn decide_pinned_by<R: Rule, V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        verb: V,
        read: impl ReadClock,
        plan: Option<&PlanTerms>,
        now: Option<Moment>,
    ) -> V::Answer {
        let (take, counts) = (verb.take(), self.keyspace.engine.source.counts());
        let missed = attempt_by!(
            R::WORDS,
            self.attempted(plan),
            counts,
            |by| match plan {
                None => attempt_under_guard!(pin, key, read, take, by, |done| verb.answer(done)),
                Some(plan) => {
                    attempt_under_guard!(pin, key, read, take, by.under(plan), |done| verb.answer(done))
                }
            },
            Miss::Untried
        );
        self.decide_slowly::<R, V, Q>(key, missed, verb, plan, now)
    }

    /// Decides after an attempt that `missed`, or was not made.
    #[inline(always)]
    fn decide_slowly<R: Rule, V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        key: KeyQuery<'_, Q>,
        missed: Miss,
        verb: V,
        plan: Option<&PlanTerms>,
        now: Option<Moment>,
    ) -> V::Answer {
        // Without a plan and a time the arguments fit into registers.
        match (plan, now) {
            (None, None) => self.decide_slowly_now::<R, V, Q>(key, missed, verb),
            _ => self.decide_by_loop(key, missed, verb, plan, now),
        }
    }

    /// Decides a call under no plan, at the present time, whose attempt came to nothing.
    ///
    /// If none was made because of a hook, it is made here, and the hook sees its decision. The
    /// loop decides in the other cases: after a lost attempt, or if a function chooses plans.
    #[cold]
    #[inline(never)]
    fn decide_slowly_now<R: Rule, V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        key: KeyQuery<'_, Q>,
        missed: Miss,
        verb: V,
    ) -> V::Answer {
        let Keyspace { engine, store, .. } = &self.keyspace;
        let (read, take, hook) = (Now(engine), verb.take(), &self.hook);
        let attempted = if missed == Miss::Untried { self.attempts } else { None };
        let (key, missed) = attempt_by!(
            R::WORDS,
            attempted,
            engine.source.counts(),
            |by| attempt_in_store!(store, key, read, take, by, |done| verb.observed(hook, done)),
            (key, missed)
        );
        if injected(Fault::LostAttemptShown) && missed == Miss::LostRace {
            let site = KeySite { inner: self, pin: store.pin(), key, missed };
            let (_, done) = site.look(take.into(), None);
            let _ = hook.observe(take.n(), decision(take.into(), Ok(done)));
        }
        self.decide_by_loop(key, missed, verb, None, None)
    }

    /// Decides by the loop, or by more attempts after a lost race.
    #[cold]
    #[inline(never)]
    fn decide_by_loop<V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        key: KeyQuery<'_, Q>,
        missed: Miss,
        verb: V,
        plan: Option<&PlanTerms>,
        now: Option<Moment>,
    ) -> V::Answer {
        let (pin, Keyspace { engine, .. }) = (self.keyspace.store.pin(), &self.keyspace);
        let (entry, options) = (self.keyspace.entry(&pin, key), CallOptions { plan, now });
        if missed == Miss::LostRace
            && options.is_plain()
            && let Some(bucket) = entry.get()
        {
            attempt_by!(
                BUCKETS | WINDOWS,
                self.attempts,
                engine.source.counts(),
                |by| {
                    if let Some(done) = engine.attempt_again(bucket, Now(engine), verb.take(), by) {
                        return verb.observed(&self.hook, done);
                    }
                },
                {}
            );
        }
        match &self.plans {
            Some(plans) if plan.is_none() => {
                let (stored, found) = entry.find_stored();
                self.decide_chosen(entry, found, verb, plans.of(key.key, stored), now)
            }
            _ => {
                let site = KeySite { inner: self, pin: &pin, key, missed };
                verb.decided(&self.hook, site.run(verb.take(), options))
            }
        }
    }

    /// Decides under the plan that the function of plans has chosen: at the present time by an
    /// attempt, then by the loop.
    #[inline(never)]
    fn decide_chosen<V: Verb, Q: ToKey<K> + ?Sized>(
        &self,
        entry: KeyEntry<'_, K, Q>,
        found: Option<FoundBucket<'_>>,
        verb: V,
        plan: Option<&PlanTerms>,
        now: Option<Moment>,
    ) -> V::Answer {
        let (Keyspace { engine, .. }, hook, take) = (&self.keyspace, &self.hook, verb.take());
        let (read, counts) = (Now(engine), engine.source.counts());
        let knows = now.is_none() && plan.is_none_or(|plan| plan.decides_for(self.keyspace.id));
        let missed = attempt_by!(
            BUCKETS | WINDOWS,
            knows.then_some(counts.counting),
            counts,
            |by| match plan {
                None => match attempt(found, read, take, by) {
                    Ok(done) => return verb.observed(hook, done),
                    Err(missed) => missed,
                },
                Some(plan) => match attempt(found, read, take, by.under(plan)) {
                    Ok(done) => return verb.observed(hook, done),
                    Err(missed) => missed,
                },
            },
            Miss::Untried
        );
        let call = Call { take, plan };
        let site = KeySite { inner: self, pin: entry.pin, key: entry.key, missed };
        verb.decided(hook, (call, site.charge(call, now)))
    }
}
