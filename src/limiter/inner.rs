//! The verbs on a key: under its plan, at a time, with a receipt.

use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::{First, Missed, Read, ReadOnce, Word};
use crate::bucket::engine::{At, Done, Now, Place, Under};
use crate::bucket::reservation::{Hold, Receipt, Reservation, Reserved};
use crate::keyed::entry::Slot;
use crate::keyed::hot::Known;
use crate::keyed::key::{ByKey, ToKey};
use crate::keyed::keyspace::{Keyspace, Stats};
use crate::keyed::store::Found;
use crate::keyed::store::{Pin, Store};
use crate::limiter::observer::Extras;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::plan::Plan;
use crate::word::state::{Outcome, Spot};
use crate::word::terms::{Pace, Reading, Terms};
use crate::word::verb::{Begin, Reserve, Step, Take, TakeUpTo};

pub(crate) struct Inner<K, S> {
    pub(crate) keyspace: Keyspace<K>,
    pub(crate) hasher: S,
    pub(crate) extras: Extras,
    /// The plans of keys, where a function chooses among some.
    plans: Option<Box<Plans<K>>>,
    /// No plans to choose from, no hook, and no key is spread: one test on the fast path.
    plain: bool,
}

pub(crate) struct Plans<K> {
    pub(crate) plans: Vec<Plan>,
    pub(crate) choose: Choose<K>,
}

/// Chooses a plan for a key, by its place in a list.
pub(crate) type Choose<K> = Box<dyn Fn(&K) -> Option<usize> + Send + Sync>;

/// What a call says beside its key and its tokens.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) plan: Option<&'a Plan>,
    pub(crate) now: Option<Moment>,
}

impl Ask<'_> {
    pub(crate) const NOW: Ask<'static> = Ask { plan: None, now: None };
}

/// An outcome on a key's bucket, with what the public answers are made of.
trait Answer {
    type Answer;
    /// `plan` is the one the key is under; so many tokens were leased beside what was found.
    fn of<P: Pace>(self, done: Done<P>, plan: Option<Plan>, leased: u64) -> Self::Answer;
}

/// Makes the public decision of an outcome.
struct Decide<T>(T);

impl<T: Step> Answer for Decide<T> {
    type Answer = Result<Granted, Denied>;

    #[inline]
    fn of<P: Pace>(self, done: Done<P>, _: Option<Plan>, _: u64) -> Result<Granted, Denied> {
        done.and_then(|done| self.0.decision(done))
    }
}

/// Tells how many were taken, and makes the decision on the first.
struct UpTo(TakeUpTo);

impl Answer for UpTo {
    type Answer = (Granted, Result<Granted, Denied>);

    fn of<P: Pace>(self, done: Done<P>, _: Option<Plan>, _: u64) -> Self::Answer {
        match done {
            Ok((outcome, reading)) => (Granted::new(outcome, &reading), self.0.decision((outcome, reading))),
            Err(denied) => (Granted::anyway(0, denied.remaining()), Err(denied)),
        }
    }
}

/// Makes a decision, and a receipt for what was taken.
struct Receive<T>(T);

impl<T: Step> Answer for Receive<T> {
    type Answer = (Result<Granted, Denied>, Option<Receipt>);

    fn of<P: Pace>(self, done: Done<P>, plan: Option<Plan>, leased: u64) -> Self::Answer {
        let receipt = |(outcome, reading): &(Outcome, Reading<P>)| {
            let receipt = || Receipt::new(*outcome, reading, plan).beside(reading.pace.terms().units(leased));
            outcome.granted.then(receipt)
        };
        let receipt = done.as_ref().ok().and_then(receipt);
        (done.and_then(|done| self.0.decision(done)), receipt)
    }
}

impl<K: Hash + Eq> Plans<K> {
    /// The plan of a key: of the one that is stored, or of an owned one made for the question.
    #[cold]
    fn of<Q: ToKey<K> + ?Sized>(&self, place: Slot<'_, K, Q>) -> Option<Plan> {
        let stored = match place.pin {
            Pin::Map(buckets, guard) => buckets.map.get_key_value(&place.key, guard),
            Pin::Table(_) => None,
        };
        let choice = match stored {
            Some((stored, _)) => (self.choose)(&stored.key),
            None => (self.choose)(&place.key.key.to_key()),
        };
        choice.and_then(|plan| self.plans.get(plan).copied())
    }
}

/// One attempt at a known key's bucket.
#[inline(always)]
fn attempt(found: Option<impl Word>, read: impl ReadOnce, n: u64) -> Result<(Outcome, Reading), Missed> {
    // Not by a closure, which cannot be told to be inlined: where it was not, a decision took a quarter longer.
    match found {
        Some(bucket) => bucket.attempt(First::Word, read, n),
        None => Err(Missed::Unfit),
    }
}

impl<K, S> Inner<K, S> {
    pub(crate) fn new(
        keyspace: Keyspace<K>,
        hasher: S,
        extras: Extras,
        plans: Option<Plans<K>>,
    ) -> Inner<K, S> {
        let plain = plans.is_none() && extras.observer.is_none() && keyspace.hot.is_none();
        Inner { keyspace, hasher, extras, plans: plans.map(Box::new), plain }
    }
}

impl<K: Eq, S> Inner<K, S> {
    pub(crate) fn stats(&self) -> Stats {
        Stats { overruled: self.extras.overruled(), ..self.keyspace.stats() }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    #[inline]
    fn place<'a, Q: ToKey<K> + ?Sized>(&'a self, pin: &'a Pin<'a, K>, key: &'a Q) -> Slot<'a, K, Q> {
        self.keyspace.place(pin, ByKey::new(&self.hasher, key))
    }

    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &Pin<'_, K>, key: &Q) -> bool {
        self.keyspace.remove(pin, ByKey::new(&self.hasher, key))
    }

    /// As [`try_acquire_n`](Inner::try_acquire_n), with a pin of its own: what is hot knows the guard alone.
    #[inline]
    pub(crate) fn try_acquire_once<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        if !self.plain {
            return self.try_acquire_watched(key, n);
        }
        let (key, now) = (ByKey::new(&self.hasher, key), Now(&self.keyspace.rules));
        let (pin, attempt) = match &self.keyspace.store {
            Store::Map(buckets) => {
                let guard = buckets.map.guard();
                let attempt = attempt(buckets.map.get(&key, &guard), now, n);
                if let Ok(done) = attempt {
                    return Take(n).decision(done);
                }
                (Pin::Map(buckets, guard), attempt)
            }
            Store::Table(table) => (Pin::Table(table), attempt(table.find(key.full), now, n)),
        };
        match attempt {
            Ok(done) => Take(n).decision(done),
            Err(missed) => self.try_acquire_anyhow(&pin, key, missed, n),
        }
    }

    /// Where there is more to it than a known key's bucket.
    #[cold]
    #[inline(never)]
    fn try_acquire_watched<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.try_acquire_anyhow(&self.keyspace.store.pin(), ByKey::new(&self.hasher, key), Missed::Unfit, n)
    }

    #[inline]
    pub(crate) fn try_acquire_n<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let key = ByKey::new(&self.hasher, key);
        match self.attempt_at(pin, key, Now(&self.keyspace.rules), n) {
            Ok(done) => Take(n).decision(done),
            Err(missed) => self.try_acquire_anyhow(pin, key, missed, n),
        }
    }

    #[inline(always)]
    fn attempt_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: ByKey<'_, Q>,
        read: impl ReadOnce,
        n: u64,
    ) -> Result<(Outcome, Reading), Missed> {
        if !self.plain {
            return Err(Missed::Unfit);
        }
        match pin {
            Pin::Map(buckets, guard) => attempt(buckets.map.get(&key, guard), read, n),
            Pin::Table(table) => attempt(table.find(key.full), read, n),
        }
    }

    /// With what became of an attempt.
    #[cold]
    #[inline(never)]
    fn try_acquire_anyhow<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: ByKey<'_, Q>,
        missed: Missed,
        n: u64,
    ) -> Result<Granted, Denied> {
        if let Some(hot) = &self.keyspace.hot {
            return self.keyspace.try_acquire_hot(hot, pin, key, Now(&self.keyspace.rules), n);
        }
        let place = self.keyspace.place(pin, key);
        if missed == Missed::Lost
            && let Some(bucket) = place.search()
            && let Some(done) =
                self.keyspace.rules.attempt_again(bucket, missed, Now(&self.keyspace.rules), n)
        {
            return Take(n).decision(done);
        }
        self.decide(place, n, Ask::NOW)
    }

    /// As [`try_acquire_n`](Inner::try_acquire_n), as it is asked for.
    pub(crate) fn try_acquire_as<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: &Q,
        n: u64,
        ask: Ask<'_>,
    ) -> Result<Granted, Denied> {
        let key = ByKey::new(&self.hasher, key);
        match ask {
            Ask { plan: None, now: Some(now) } => self.try_acquire_at(pin, key, now, n),
            ask => self.decide(self.keyspace.place(pin, key), n, ask),
        }
    }

    /// As [`try_acquire_n`](Inner::try_acquire_n), at a reading that was taken before.
    #[inline]
    pub(crate) fn try_acquire_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: ByKey<'_, Q>,
        now: Moment,
        n: u64,
    ) -> Result<Granted, Denied> {
        match self.attempt_at(pin, key, At(&self.keyspace.rules, now), n) {
            Ok(done) => Take(n).decision(done),
            Err(_) => self.decide(self.keyspace.place(pin, key), n, Ask { now: Some(now), ..Ask::NOW }),
        }
    }

    #[cold]
    fn decide<Q: ToKey<K> + ?Sized>(
        &self,
        place: Slot<'_, K, Q>,
        n: u64,
        ask: Ask<'_>,
    ) -> Result<Granted, Denied> {
        let step = Take(n);
        if let Ask { plan: None, now: Some(now) } = ask
            && let Some(hot) = &self.keyspace.hot
        {
            return self.keyspace.try_acquire_hot(
                hot,
                place.pin,
                place.key,
                At(&self.keyspace.rules, now),
                n,
            );
        }
        self.extras.observe(n, self.take(place, ask, step, Decide(step)))
    }

    pub(crate) fn acquire_up_to<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: &Q,
        n: u64,
        ask: Ask<'_>,
    ) -> Granted {
        let step = TakeUpTo(n);
        let (granted, decision) = self.take(self.place(pin, key), ask, step, UpTo(step));
        self.extras.observe_up_to(n, granted, decision)
    }

    pub(crate) fn refund<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: &Q,
        n: u64,
        plan: Option<&Plan>,
    ) {
        let place = self.place(pin, key);
        if let (Some(bucket), Ok(plan)) = (place.search(), self.plan_of(place, plan)) {
            self.keyspace.refund_found(Known { id: bucket.id(), word: bucket }, n, plan);
        }
    }

    pub(crate) fn peek<Q: ToKey<K> + ?Sized>(&self, pin: &Pin<'_, K>, key: &Q, ask: Ask<'_>) -> Snapshot {
        let looked = self.look_at(pin, key, ask, Take(0));
        looked.unwrap_or_else(|denied| Granted::anyway(0, denied.remaining())).into()
    }

    /// Whether the key has an entry.
    pub(crate) fn holds<Q: ToKey<K> + ?Sized>(&self, pin: &Pin<'_, K>, key: &Q) -> bool {
        self.place(pin, key).search().is_some()
    }

    /// What a take would come to.
    pub(crate) fn look_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: &Q,
        ask: Ask<'_>,
        step: Take,
    ) -> Result<Granted, Denied> {
        let place = self.place(pin, key);
        let rules = &self.keyspace.rules;
        if let Some(hot) = &self.keyspace.hot {
            return match (self.plan_of(place, ask.plan)?, ask.now) {
                (None, None) => step.decision(self.keyspace.peek_hot(hot, place, Now(rules), step)),
                (None, Some(now)) => step.decision(self.keyspace.peek_hot(hot, place, At(rules, now), step)),
                (Some(plan), now) => {
                    let read = Under(At(rules, now.unwrap_or_else(|| rules.clock.moment())), plan);
                    step.decision(self.keyspace.peek_hot_under(hot, place.under(&plan), read, step))
                }
            };
        }
        match (self.plan_of(place, ask.plan)?, ask.now) {
            (None, None) => step.decision(rules.peek(place, Now(rules), step)),
            (None, Some(now)) => step.decision(rules.peek(place, At(rules, now), step)),
            (Some(plan), None) => {
                step.decision(rules.peek(place.under(&plan), Under(Now(rules), plan), step))
            }
            (Some(plan), Some(now)) => {
                step.decision(rules.peek(place.under(&plan), Under(At(rules, now), plan), step))
            }
        }
    }

    /// The plan of a call, or that of the key.
    fn plan_of<Q: ToKey<K> + ?Sized>(
        &self,
        place: Slot<'_, K, Q>,
        plan: Option<&Plan>,
    ) -> Result<Option<Plan>, Denied> {
        match (plan, &self.plans) {
            (None, None) => Ok(None),
            (Some(plan), _) if plan.limiter != self.keyspace.id => Err(Denied::foreign_plan()),
            (Some(plan), _) => Ok(Some(*plan)),
            (None, Some(plans)) => Ok(plans.of(place)),
        }
    }

    /// Takes tokens of the key's bucket, under a plan and at a reading that was taken before if there are.
    fn take<Q: ToKey<K> + ?Sized, A: Answer>(
        &self,
        place: Slot<'_, K, Q>,
        ask: Ask<'_>,
        step: impl Step,
        answer: A,
    ) -> A::Answer {
        let rules = &self.keyspace.rules;
        match (self.plan_of(place, ask.plan), ask.now) {
            (Ok(None), None) => self.answer(place, Now(rules), step, answer),
            (Ok(None), Some(now)) => self.answer(place, At(rules, now), step, answer),
            (Ok(Some(plan)), None) => {
                answer.of(self.run(place.under(&plan), Under(Now(rules), plan), step), Some(plan), 0)
            }
            (Ok(Some(plan)), Some(now)) => {
                answer.of(self.run(place.under(&plan), Under(At(rules, now), plan), step), Some(plan), 0)
            }
            (Err(denied), _) => answer.of::<Terms>(Err(denied), None, 0),
        }
    }

    /// Under no plan.
    #[inline]
    fn answer<Q: ToKey<K> + ?Sized, A: Answer>(
        &self,
        place: Slot<'_, K, Q>,
        read: impl Read<Reading>,
        step: impl Step,
        answer: A,
    ) -> A::Answer {
        match &self.keyspace.hot {
            None => answer.of(self.keyspace.rules.acquire(place, read, step), None, 0),
            Some(hot) => {
                let (done, leased) = self.keyspace.run_hot(hot, place, read, step);
                answer.of(done, None, leased)
            }
        }
    }

    /// Under a plan.
    #[inline]
    fn run<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        place: Slot<'_, K, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Done<P> {
        match &self.keyspace.hot {
            None => self.keyspace.rules.acquire(place, read, step),
            Some(hot) => self.keyspace.run_hot_under(hot, place, read, step),
        }
    }

    /// A decision with a receipt for what was taken. In shadow mode that is nothing, for what was denied.
    pub(crate) fn receive<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &Pin<'_, K>,
        key: &Q,
        ask: Ask<'_>,
        step: impl Step,
    ) -> Result<(Granted, Receipt), Denied> {
        let place = self.place(pin, key);
        let removals = self.keyspace.shard(pin, place.key).latest();
        let (decision, receipt) = self.take(place, ask, step, Receive(step));
        let granted = self.extras.observe(step.most(), decision)?;
        let receipt = receipt.unwrap_or_else(|| Receipt::void(self.keyspace.rules.clock.moment()));
        Ok((granted, receipt.counted_from(removals)))
    }

    /// As [`receive`](Inner::receive), with a receipt that does not need the key.
    pub(crate) fn receive_by_entry<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: Ask<'_>,
        step: impl Step,
    ) -> Result<(Granted, Receipt), Denied> {
        let pin = self.keyspace.store.pin();
        let (granted, mut receipt) = self.receive(&pin, key, ask, step)?;
        if receipt.spot == Spot::Own {
            let place = self.place(&pin, key);
            receipt.spot = match &pin {
                Pin::Map(buckets, guard) => {
                    let found = buckets.map.get_key_value(&place.key, guard);
                    found.map_or(Spot::Nowhere, |(stored, _)| Spot::Entry(stored.tag.packed()))
                }
                Pin::Table(_) => Spot::Inline(place.key.full),
            };
        }
        Ok((granted, receipt))
    }

    /// Undoes what a receipt of this key is for.
    pub(crate) fn undo<Q: ToKey<K> + ?Sized>(&self, pin: &Pin<'_, K>, key: &Q, receipt: &Receipt) {
        let place = self.place(pin, key);
        let own = |found: Found<'_>| {
            let word = self.keyspace.shard(pin, place.key).since(receipt.removals, found);
            self.keyspace.undo_found(Known { id: found.id(), word }, receipt);
        };
        match receipt.spot {
            Spot::Own => place.search().into_iter().for_each(own),
            _ => self
                .keyspace
                .bucket_of(pin, receipt)
                .into_iter()
                .for_each(|known| self.keyspace.undo_found(known, receipt)),
        }
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> Inner<K, S> {
    pub(crate) fn reserve<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: Ask<'_>,
        n: u64,
        patience: u64,
    ) -> Reserved<'_> {
        // In shadow mode nobody waits, either.
        let (granted, receipt) = match patience == 0 || self.extras.is_shadow() {
            true => self.receive_by_entry(key, ask, Take(n))?,
            false => self.receive_by_entry(key, ask, Reserve { n, patience })?,
        };
        Ok(Reservation::new(&self.keyspace, receipt, granted))
    }

    pub(crate) fn hold<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: Ask<'_>,
        estimate: u64,
    ) -> Result<Hold<'_>, Denied> {
        let (granted, receipt) = match estimate {
            // There must be a bucket to settle with.
            0 => self.receive_by_entry(key, ask, Begin)?,
            n => self.receive_by_entry(key, ask, Take(n))?,
        };
        Ok(Hold::new(&self.keyspace, receipt, granted))
    }
}
