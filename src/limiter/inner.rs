//! The shared part of a limiter: its keys, its hasher, its hook and its plans.

use std::hash::{BuildHasher, Hash};

use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::keyspace::{Keyspace, Stats};
use crate::keyed::store::StoreGuard;
use crate::limiter::asked::Frame;
use crate::limiter::hook::DecisionHook;
use crate::rule::counts::Counting;
use crate::time::jitter::Jitter;
use crate::word::decision::Denied;
use crate::word::plan::PlanTerms;

pub(crate) struct Inner<K, S> {
    pub(crate) keyspace: Keyspace<K>,
    pub(crate) hasher: S,
    pub(crate) hook: DecisionHook,
    pub(crate) jitter: Jitter,
    /// Most callers that wait in the line of a key.
    pub(crate) max_waiting: usize,
    /// Plans chosen by a function of the key, if the limiter has such a function.
    pub(super) plans: Option<Box<Plans<K>>>,
    /// The kind of words, if there is neither a function of plans nor a hook: one test on the fast
    /// path.
    pub(super) fast_path: Option<Counting>,
    /// The kind of words, if there is no function of plans. A hook sees the decision of an attempt.
    pub(super) attempts: Option<Counting>,
}

pub(crate) struct Plans<K> {
    pub(crate) plans: Vec<PlanTerms>,
    pub(crate) choose: Choose<K>,
}

/// A function from a key to the index of its plan.
pub(crate) type Choose<K> = Box<dyn Fn(&K) -> Option<usize> + Send + Sync>;

impl<K: Hash + Eq> Plans<K> {
    /// Returns the plan chosen for the key.
    ///
    /// The function is asked about the `stored` key if there is one, else about a temporary owned
    /// copy.
    #[cold]
    pub(super) fn of<Q: ToKey<K> + ?Sized>(&self, key: &Q, stored: Option<&K>) -> Option<&PlanTerms> {
        let choice = match stored {
            Some(stored) => (self.choose)(stored),
            None => (self.choose)(&key.to_key()),
        };
        choice.and_then(|plan| self.plans.get(plan))
    }
}

impl<K, S> Inner<K, S> {
    pub(crate) fn new(
        keyspace: Keyspace<K>,
        hasher: S,
        hook: DecisionHook,
        plans: Option<Plans<K>>,
    ) -> Inner<K, S> {
        let attempts = plans.is_none().then_some(keyspace.engine.source.counts().counting);
        let fast_path = attempts.filter(|_| hook.is_none());
        Inner {
            keyspace,
            hasher,
            hook,
            jitter: Jitter::NONE,
            max_waiting: usize::MAX,
            plans: plans.map(Box::new),
            fast_path,
            attempts,
        }
    }
}

impl<K, S> Inner<K, S> {
    pub(super) fn frame(&self) -> Frame<'_> {
        let Inner { keyspace, hook, jitter, max_waiting, .. } = self;
        Frame { engine: &keyspace.engine, hook, jitter: *jitter, max_waiting: *max_waiting }
    }

    /// Returns the plan that a call names, and `None` if it names none. The function of plans is
    /// not asked.
    ///
    /// # Errors
    ///
    /// [`Reason::ForeignPlan`](crate::Reason::ForeignPlan) for a plan of another limiter.
    pub(super) fn named_plan<'p>(
        &self,
        named: Option<&'p PlanTerms>,
    ) -> Result<Option<&'p PlanTerms>, Denied> {
        match named {
            Some(plan) if plan.limiter != self.keyspace.id => Err(Denied::foreign_plan()),
            plan => Ok(plan),
        }
    }
}

impl<K: Eq, S> Inner<K, S> {
    pub(crate) fn stats(&self) -> Stats {
        Stats { overruled: self.hook.overruled(), ..self.keyspace.stats() }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: &Q) -> bool {
        self.keyspace.remove(pin, KeyQuery::new(&self.hasher, key))
    }
}
