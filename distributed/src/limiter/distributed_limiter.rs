//! The verbs of a limiter.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate::{Denied, Granted, Quota, RateLimiter, Reason, Snapshot, ToKey};

use super::plan::{Plan, Plans};
use super::report::Report;
use super::shared::{Decision, Shared};
use super::shared_rule::SharedRule;
use super::slot::Slot;
use super::slots::Slots;
use super::sourced::{Source, Sourced};
use super::stats::DistributedStats;
use super::waiting::Waiting;
use crate::key::StoreKey;
use crate::law::amount::Amount;
use crate::law::any_law::Law;
use crate::lease::gate::Gate;
use crate::lease::terms::{Terms, TermsKind};
use crate::store::op::{Op, Store};

/// A limit for each key, shared by all processes of a fleet.
///
/// The buckets, or the counts of windows, are in a [`Store`]. A process holds tokens of the keys
/// that it sees often, and grants them without a call, a lock or an allocation. The [documentation
/// of the crate](crate) has the modes and their bounds.
///
/// A clone is another handle to the same limiter. A drop of the last handle gives all tokens back.
pub struct DistributedLimiter<K, S, R = Quota> {
    pub(crate) inner: Arc<Inner<K, S, R>>,
}

pub(crate) struct Inner<K, S, R> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) slots: Arc<Slots<Option<K>>>,
    pub(crate) queue: UnboundedSender<Arc<Slot>>,
    pub(crate) keeper: Mutex<Option<JoinHandle<()>>>,
    pub(crate) rule: Mutex<(R, Arc<Terms>)>,
    pub(crate) plans: Plans,
    pub(crate) horizon: Duration,
    /// The limit of this process in front, if there is one.
    pub(crate) local: Option<RateLimiter<K>>,
    /// Requests of keys that found no room.
    pub(crate) without_room: AtomicU64,
}

impl<K, S, R> Clone for DistributedLimiter<K, S, R> {
    fn clone(&self) -> Self {
        DistributedLimiter { inner: self.inner.clone() }
    }
}

/// The next step of a request.
pub(crate) enum Next {
    Decided(Decision),
    Ask(Arc<Slot>),
}

impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Takes one of the tokens at hand, without a wait; see [`try_acquire_n`](Self::try_acquire_n).
    /// The first request of a key is refused, as no token is at hand: [`ask`](Self::ask) asks the
    /// store.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> Decision {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` of the tokens that this process holds, all or none, without a wait.
    ///
    /// A request of a key without a lease is refused, and a background call asks the store for `n`
    /// tokens. A later request finds them, about a round trip later, if the store has them. Tokens
    /// without a request are given back after a second, or after two horizons if that is longer. A
    /// new key beyond `max_keys` is refused with [`Reason::Full`].
    ///
    /// # Errors
    ///
    /// [`Denied`], with the place of the decision.
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) -> Decision {
        match self.at_hand(Some(key), n, None) {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.inner.want(&slot, n),
        }
    }

    /// Takes one token, by one call of the store if it is not at hand; see [`ask_n`](Self::ask_n).
    pub async fn ask<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> Decision {
        self.ask_n(key, 1).await
    }

    /// Takes `n` tokens, all or none, by one call of the store if they are not at hand.
    ///
    /// The request waits for the answer, up to the [deadline](crate::DistributedBuilder::deadline),
    /// and never for tokens to be earned. Requests of one process for one key share a call. A
    /// future that is dropped gives its tokens back, as [`refund`](Self::refund) does.
    ///
    /// # Errors
    ///
    /// [`Denied`], with the place of the decision.
    pub async fn ask_n<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) -> Decision {
        match self.at_hand(Some(key), n, None) {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.inner.ask(&slot, n).await,
        }
    }

    /// Waits for a token, and takes it; see [`acquire_n_within`](Self::acquire_n_within).
    pub async fn acquire<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> Decision {
        self.acquire_n_within(key, 1, Duration::MAX).await
    }

    /// Waits for `n` tokens, and takes them, if they are there within `max_wait`. [`Duration::MAX`]
    /// is a wait without an end.
    ///
    /// A refused request sleeps for its `retry_after`, at least 1 ms, and asks again. Requests are
    /// served in no order: a later one of any process may be first.
    ///
    /// # Errors
    ///
    /// [`Denied`] as soon as the tokens would come later than `max_wait`, and at once for a request
    /// of more than the burst, and when the limiter is closed.
    pub async fn acquire_n_within<Q>(&self, key: &Q, n: u64, max_wait: Duration) -> Decision
    where
        Q: ToKey<K> + StoreKey + ?Sized,
    {
        let begun = self.inner.shared.now();
        loop {
            let denied = match self.ask_n(key, n).await {
                Ok(granted) => return Ok(granted),
                Err(denied) => denied,
            };
            let shared = &self.inner.shared;
            let waited = Duration::from_nanos(shared.now().saturating_sub(begun));
            match denied.retry_after() {
                Some(wait) if wait <= max_wait.saturating_sub(waited) && !shared.closed.is_closed() => {
                    // The wait, or the end of the limiter.
                    let _ = timeout(wait.max(Duration::from_millis(1)), shared.closed.acquire()).await;
                }
                _ => return Err(denied),
            }
        }
    }

    /// Takes `n` tokens as [`try_acquire_n`](Self::try_acquire_n) does, under a plan.
    pub fn try_acquire_as<Q: ToKey<K> + StoreKey + ?Sized>(
        &self,
        key: &Q,
        n: u64,
        plan: &Plan<R>,
    ) -> Decision {
        match self.at_hand(Some(key), n, Some(plan)) {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.inner.want(&slot, n),
        }
    }

    /// Takes `n` tokens as [`ask_n`](Self::ask_n) does, under a plan.
    pub async fn ask_as<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64, plan: &Plan<R>) -> Decision {
        match self.at_hand(Some(key), n, Some(plan)) {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.inner.ask(&slot, n).await,
        }
    }

    /// Gives back tokens that were granted and not used.
    ///
    /// They are at hand for the next requests of this process, up to the burst and the debt
    /// together. After a second without a request they go to the store; in the exact mode they go
    /// there at once. Of a window come back at most as many as the process was granted in it and
    /// has used: those of a window that is over are lost.
    pub fn refund<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) {
        self.give_back(Some(key), n, None);
    }

    /// Takes tokens that are already spent, such as those of a request that cost more than it took.
    ///
    /// Tokens at hand are taken at once, and the others from the store by a call in the background.
    /// The bucket may go into debt for them, by one burst at most; a charge beyond that is lost. A
    /// window may count up to its limit more; a charge that no call has told the store before the
    /// window ends is dropped.
    pub fn charge<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) {
        self.take_spent(Some(key), n, None);
    }

    /// Returns the tokens of a key as this process knows them, without a call: those at hand, and
    /// those that the store had at its last answer.
    ///
    /// A key that this process does not keep has a full bucket.
    pub fn known<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> Snapshot {
        Snapshot::from(self.look(Some(key), self.rule().into()))
    }

    /// Reads the bucket of a key by a call of the store, and takes nothing.
    ///
    /// Tokens that processes hold count as taken. The bucket is read under the rule of the limiter,
    /// not under a plan.
    ///
    /// # Errors
    ///
    /// [`Reason::Unavailable`] if the call fails or has no answer within the deadline, and at once
    /// while the breaker is open.
    pub async fn peek<Q>(&self, key: &Q) -> Result<Sourced<Snapshot>, Sourced<Denied>>
    where
        Q: ToKey<K> + StoreKey + ?Sized,
    {
        let shared = &self.inner.shared;
        if self.inner.gate_under(None) != Gate::Counted {
            return Ok(Sourced::new(self.known(key), Source::Lease));
        }
        let (key, terms) = (self.stored(Some(key)), self.inner.terms());
        let unavailable = || {
            let denied = Denied::from_parts(Reason::Unavailable, 0, 0, Some(shared.rtt()));
            Sourced::new(denied, Source::Store)
        };
        let law: Law = match &terms.kind {
            TermsKind::Bucket(bucket) => bucket.spec.into(),
            TermsKind::Window(window) => shared.spec_of(*window).ok_or_else(unavailable)?.into(),
        };
        let mut ops = [Op::new(&key, law, Amount::default())];
        let called = match shared.breaker.is_open() {
            true => None,
            false => timeout(shared.deadline, shared.store.acquire(&mut ops)).await.ok(),
        };
        if let Some(Err(error)) = &called {
            shared.report_permanent(error);
        }
        if !matches!(called, Some(Ok(()))) {
            return Err(unavailable());
        }
        let (left, reset) = law.level(ops[0].answer);
        Ok(Sourced::new(Snapshot::from(Granted::from_parts(0, left, reset)), Source::Store))
    }

    /// Gives all tokens back, and ends the background task. Later requests are decided by the
    /// policy of an outage.
    ///
    /// This takes up to four rounds of calls, and the pauses between them are half a second
    /// together, or one horizon if that is longer. Tokens that mature later, or while the store
    /// does not answer, are lost. A drop of the last handle does the same in the background.
    pub async fn shutdown(&self) {
        self.inner.shared.closed.close();
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            let _ = keeper.await;
        }
    }

    /// Returns the counts of this limiter in this process.
    #[must_use]
    pub fn stats(&self) -> DistributedStats {
        let shared = &self.inner.shared;
        let mut stats = DistributedStats::of(&shared.counters);
        let slots = self.inner.slots.map.pin();
        for slot in slots.values() {
            stats.keys += 1;
            stats.by_lease += slot.by_lease.load(Relaxed);
            let [granted, used, returned] = slot.tokens();
            stats.tokens_granted += granted;
            stats.tokens_used = stats.tokens_used.wrapping_add(used);
            stats.tokens_returned += returned;
        }
        // More may be refunded than was granted.
        stats.tokens_used = u64::try_from(stats.tokens_used as i64).unwrap_or(0);
        stats.without_room = self.inner.without_room.load(Relaxed);
        stats.breaker_open = shared.breaker.is_open() || self.inner.is_closed();
        stats.breaker_opened = shared.breaker.opened();
        stats
    }
}

impl<K: Hash + Eq + Clone, S: Store, R: SharedRule> Inner<K, S, R> {
    /// Puts a slot under other terms in the place of this one, which gives its tokens back. The
    /// state of the key stays.
    pub(crate) fn replace(&self, key: Option<K>, slot: &Arc<Slot>, plan: Option<&Plan<R>>) {
        let terms = self.terms_under(plan);
        let by = self.shared.slot(slot.key.clone(), true, terms.clone());
        if self.slots.replace(key, slot, by) {
            slot.key.change(&slot.terms, &terms, self.shared.now());
            slot.abandon();
            slot.enqueue(&self.queue);
            self.shared.retire(slot);
        }
    }

    #[inline(always)]
    pub(crate) fn decide(&self, slot: &Arc<Slot>, n: u64) -> Next {
        match slot.take(n) {
            Ok((granted, left)) => {
                slot.by_lease.fetch_add(1, Relaxed);
                if slot.is_low(left) {
                    slot.enqueue_request(&self.queue);
                }
                Next::Decided(Ok(Sourced::new(granted, Source::Lease)))
            }
            Err(denied) => self.without_tokens(slot, n, &denied),
        }
    }

    #[cold]
    fn without_tokens(&self, slot: &Arc<Slot>, n: u64, denied: &Denied) -> Next {
        let capacity = slot.terms.capacity;
        if n > capacity {
            let denied = Denied::from_parts(Reason::TooMany, n, 0, None);
            return Next::Decided(self.shared.denied(denied, Source::Shadow));
        }
        if self.shared.breaker.is_open() || self.is_closed() {
            return Next::Decided(self.shared.without_store(slot, n));
        }
        match slot.refusal(n, denied) {
            None => Next::Ask(slot.clone()),
            Some((denied, by_shadow)) => {
                if slot.is_low(0) {
                    slot.enqueue_request(&self.queue);
                }
                let source = if by_shadow { Source::Shadow } else { Source::Lease };
                Next::Decided(self.shared.denied(denied, source))
            }
        }
    }

    /// Tells whether the background task takes no more calls. It ends with its runtime, too.
    fn is_closed(&self) -> bool {
        if self.queue.is_closed() && !self.shared.closed.is_closed() {
            self.shared.report(Report::NoRuntime, format_args!("the runtime of the limiter has ended"));
            self.shared.closed.close();
        }
        self.shared.closed.is_closed()
    }

    #[cold]
    fn want(&self, slot: &Arc<Slot>, n: u64) -> Decision {
        if !slot.has_room {
            // No later request would find the tokens.
            return self.shared.denied(Denied::from_parts(Reason::Full, n, 0, None), Source::Lease);
        }
        slot.want(n);
        slot.enqueue_request(&self.queue);
        let wait = self.shared.rtt().max(Duration::from_millis(1));
        self.shared.denied(Denied::from_parts(Reason::Empty, n, 0, Some(wait)), Source::Lease)
    }

    pub(crate) async fn ask(&self, slot: &Arc<Slot>, n: u64) -> Decision {
        let Ok(_place) = self.shared.waiting.try_acquire() else {
            return self.shared.without_store(slot, n);
        };
        let waiting = Waiting::new(slot, n, &self.queue);
        slot.enqueue_request(&self.queue);
        match waiting.wait(self.shared.deadline).await {
            Some(Ok(granted)) => self.shared.granted(granted, Source::Store),
            Some(Err(denied)) => self.shared.denied(denied, Source::Store),
            None => self.shared.without_store(slot, n),
        }
    }
}

impl<K, S, R> fmt::Debug for DistributedLimiter<K, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLimiter").field("name", &self.inner.shared.name).finish_non_exhaustive()
    }
}
