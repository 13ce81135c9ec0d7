//! The background task of a limiter: it sends calls, probes the store, and gives idle tokens back.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::flush::{Batch, MAX_BATCH};
use super::shared::Shared;
use super::slot::{Slot, Sweep};
use super::slots::Slots;
use crate::store::op::Store;

/// The time between two sweeps for idle keys.
const SWEEP: Duration = Duration::from_millis(500);

pub(crate) struct Keeper<K, S> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) slots: Arc<Slots<K>>,
    pub(crate) queue: UnboundedReceiver<Arc<Slot>>,
    /// The time without a request after which the tokens of a key are given back.
    pub(crate) idle: Duration,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: Store> Keeper<K, S> {
    /// Runs until all handles of the limiter are gone, then gives all tokens back.
    pub(crate) async fn run(mut self) {
        let (mut calls, mut queued, mut due, mut open) = (JoinSet::new(), Vec::new(), Due::default(), true);
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while open && !self.shared.closed.is_closed() {
            let probe = self.shared.breaker.until_probe(self.shared.now());
            tokio::select! {
                n = self.queue.recv_many(&mut queued, MAX_BATCH), if due.requests.len() < MAX_BATCH => open = n > 0,
                _ = self.shared.closed.acquire() => {}
                _ = self.shared.calls.acquire(), if !due.is_empty() => {}
                Some(ended) = calls.join_next() => queued.extend(ended.into_iter().flatten()),
                _ = sleep(probe.unwrap_or_default()), if probe.is_some() => self.shared.probe().await,
                _ = sweep.tick() => self.sweep(&mut due, self.idle),
            }
            queued.drain(..).for_each(|slot| due.push(slot));
            self.send(&mut calls, &mut due);
        }
        self.end(calls, due).await;
    }

    /// Sends calls for the keys that are due. While the breaker is open, ends the wait of their
    /// requests instead.
    fn send(&self, calls: &mut JoinSet<Vec<Arc<Slot>>>, due: &mut Due) {
        while !due.is_empty()
            && let Ok(permit) = self.shared.calls.clone().try_acquire_owned()
        {
            let slots = due.next_batch();
            for slot in &slots {
                // Before the slot's amount is read: a request after it queues the slot again.
                slot.queued.store(false, SeqCst);
                slot.urgent.store(false, SeqCst);
            }
            if self.shared.breaker.is_open() {
                slots.iter().for_each(|slot| slot.give_up());
            } else if let Some(batch) = Batch::begin(&self.shared, slots) {
                calls.spawn(batch.call(permit));
            }
        }
    }

    /// Queues the idle keys with tokens to give back, and removes those without.
    fn sweep(&self, due: &mut Due, idle: Duration) {
        if self.shared.breaker.is_open() {
            return;
        }
        self.slots.forget(self.shared.now());
        for (key, slot) in &self.slots.map.pin() {
            match slot.sweep(idle) {
                Sweep::GivesBack => due.push(slot.clone()),
                Sweep::Empty if self.slots.silence(key, slot) => self.shared.retire(slot),
                Sweep::Used | Sweep::Empty => {}
            }
        }
    }

    /// Gives all tokens back, with those that mature in the meantime.
    async fn end(&mut self, mut calls: JoinSet<Vec<Arc<Slot>>>, mut due: Due) {
        for _ in 0..4 {
            std::iter::from_fn(|| self.queue.try_recv().ok()).for_each(|slot| due.push(slot));
            self.sweep(&mut due, Duration::ZERO);
            self.send(&mut calls, &mut due);
            while let Some(ended) = calls.join_next().await {
                ended.into_iter().flatten().for_each(|slot| due.push(slot));
                self.send(&mut calls, &mut due);
            }
            if self.slots.map.pin().is_empty() || self.shared.breaker.is_open() {
                return;
            }
            sleep(self.idle / 8).await;
        }
    }
}

/// The slots that are due. A key has two after a change of its quota or plan, and one for each
/// request if it has no room: a call takes one of each key, and other keys wait for none of them.
#[derive(Default)]
struct Due {
    /// The keys with a request, in the order of their next calls.
    requests: VecDeque<Arc<Slot>>,
    /// The keys that only give tokens back or charge some.
    others: VecDeque<Arc<Slot>>,
    /// The slots of each of these keys. A place in a queue that is not the key's any more is passed
    /// over.
    slots: HashMap<Box<[u8]>, OfKey>,
}

/// The slots of a key that are due, and whether its place is among those with a request.
struct OfKey {
    slots: VecDeque<Arc<Slot>>,
    has_request: bool,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn push(&mut self, slot: Arc<Slot>) {
        let is_urgent = slot.urgent.load(SeqCst);
        match self.slots.get_mut(&slot.key.stored) {
            Some(of_key) if of_key.has_request || !is_urgent => of_key.slots.push_back(slot),
            Some(of_key) => {
                of_key.has_request = true;
                self.requests.push_back(slot.clone());
                // The one with the request is first.
                of_key.slots.push_front(slot);
            }
            None => {
                self.enter(&slot, is_urgent);
                let slots = VecDeque::from([slot.clone()]);
                self.slots.insert(slot.key.stored.clone(), OfKey { slots, has_request: is_urgent });
            }
        }
    }

    /// Gives the key of a slot a place.
    fn enter(&mut self, slot: &Arc<Slot>, has_request: bool) {
        let queue = if has_request { &mut self.requests } else { &mut self.others };
        queue.push_back(slot.clone());
    }

    /// Takes the slots of the next call: those of keys with a request first.
    fn next_batch(&mut self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<Arc<Slot>> = Vec::new();
        let mut taken: Vec<OfKey> = Vec::new();
        for has_request in [true, false] {
            while slots.len() < MAX_BATCH
                && let Some(place) =
                    if has_request { self.requests.pop_front() } else { self.others.pop_front() }
            {
                let key = &place.key.stored;
                if self.slots.get(key).is_none_or(|of_key| of_key.has_request != has_request) {
                    continue;
                }
                if let Some(mut of_key) = self.slots.remove(key) {
                    slots.extend(of_key.slots.pop_front());
                    taken.push(of_key);
                }
            }
        }
        // The further slots of a key are due after those of other keys.
        for OfKey { slots: further, .. } in taken {
            further.into_iter().for_each(|slot| self.push(slot));
        }
        slots
    }
}

impl<S> Shared<S> {
    /// Adds the counts of a call to those of the limiter, if its slot is not in the map any more.
    pub(crate) fn count_left(&self, slot: &Slot) {
        if slot.left.load(Relaxed) {
            self.retire(slot);
        }
    }

    /// Adds the counts of a removed slot to those of the limiter: those since the last time.
    pub(crate) fn retire(&self, slot: &Slot) {
        self.counters.decisions[super::sourced::Source::Lease as usize]
            .fetch_add(slot.by_lease.swap(0, Relaxed), Relaxed);
        for (total, tokens) in self.counters.gone.iter().zip(slot.tokens_since()) {
            // A difference may be below 0: it wraps.
            total.fetch_add(tokens, Relaxed);
        }
    }
}
