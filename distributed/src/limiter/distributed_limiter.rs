//! A limiter, and the steps of its requests.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tollgate::{Denied, Quota, RateLimiter, Reason};

use super::plan::{Plans, SharedPlan};
use super::report::Report;
use super::shared::{Shared, SharedDecision};
use super::shared_rule::SharedRule;
use super::slot::Slot;
use super::slots::Slots;
use super::sourced::{Source, Sourced};
use super::stats::DistributedStats;
use super::waiting::Waiting;
use crate::key::StoreKey;
use crate::lease::terms::{Leasing, Terms};
use crate::store::op::Store;

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
    pub(crate) leasing: Leasing,
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
    Decided(SharedDecision),
    Ask(Arc<Slot>),
}

impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Gives all tokens back, and ends the background task. Later requests are decided by the
    /// policy of an outage.
    ///
    /// This takes up to four rounds of calls, and the pauses between them are half a second
    /// together, or one horizon if that is longer. Tokens that mature later, or while the store
    /// does not answer, are lost. A drop of the last handle does the same in the background. After
    /// a `fork`, the child does nothing: the tokens are those of its parent.
    pub async fn shutdown(&self) {
        self.inner.shared.closed.close();
        if self.inner.shared.has_forked() {
            return;
        }
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            let _ = keeper.await;
        }
    }

    /// Tells whether the store, or a part of it, does not answer: a breaker is open, and the policy
    /// of an outage decides.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.inner.shared.lanes.is_any_open()
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
        stats.breaker_open = shared.lanes.is_any_open() || self.inner.is_closed();
        stats.breaker_opened = shared.lanes.opened();
        stats
    }
}

impl<K: Hash + Eq + Clone, S: Store, R: SharedRule> Inner<K, S, R> {
    /// Puts a slot under other terms in the place of this one, which gives its tokens back. The
    /// state of the key stays.
    pub(crate) fn replace(&self, key: Option<K>, slot: &Arc<Slot>, plan: Option<&SharedPlan<R>>) {
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
        if self.shared.is_away(&slot.key.stored) || self.is_closed() {
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
    pub(crate) fn want(&self, slot: &Arc<Slot>, n: u64) -> SharedDecision {
        if self.shared.has_forked() {
            return self.shared.without_store(slot, n);
        }
        if !slot.has_room {
            // No later request would find the tokens.
            return self.shared.denied(Denied::from_parts(Reason::Full, n, 0, None), Source::Lease);
        }
        slot.want(n);
        slot.enqueue_request(&self.queue);
        let wait = self.shared.lane(&slot.key.stored).rtt().max(Duration::from_millis(1));
        self.shared.denied(Denied::from_parts(Reason::Empty, n, 0, Some(wait)), Source::Lease)
    }

    pub(crate) async fn ask(&self, slot: &Arc<Slot>, n: u64) -> SharedDecision {
        if self.shared.has_forked() {
            return self.shared.without_store(slot, n);
        }
        let Ok(_place) = self.shared.waiting.try_acquire() else {
            return self.shared.without_store(slot, n);
        };
        let waiting = Waiting::new(slot, n, &self.queue);
        slot.enqueue_request(&self.queue);
        if self.queue.is_closed() {
            // The background task has ended since.
            slot.give_up();
        }
        match waiting.wait(self.shared.deadline).await {
            Some(Ok(granted)) => self.shared.granted(granted, Source::Store),
            Some(Err(denied)) => self.shared.denied(denied, Source::Store),
            None => {
                self.note_overdue(slot);
                self.shared.without_store(slot, n)
            }
        }
    }

    /// Counts a request without an answer whose lane answers in time: it waited for the end of
    /// another call of its key before its own began.
    fn note_overdue(&self, slot: &Slot) {
        let shared = &self.shared;
        let rtt = shared.lane(&slot.key.stored).rtt();
        if rtt * 2 > shared.deadline && !shared.is_away(&slot.key.stored) && !self.is_closed() {
            shared.counters.overdue.fetch_add(1, Relaxed);
            let why =
                "a request that comes during a call of its key waits for two, and the policy decides it";
            let deadline = shared.deadline;
            shared.report(
                Report::Slow,
                format_args!("an answer takes {rtt:?} of the deadline of {deadline:?}: {why}"),
            );
        }
    }
}

impl<K, S, R> fmt::Debug for DistributedLimiter<K, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLimiter").field("name", &self.inner.shared.name).finish_non_exhaustive()
    }
}
