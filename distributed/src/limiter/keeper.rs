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
                n = self.queue.recv_many(&mut queued, MAX_BATCH), if due.keys.len() < MAX_BATCH => open = n > 0,
                _ = self.shared.closed.acquire() => {}
                _ = self.shared.calls.acquire(), if !due.keys.is_empty() => {}
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
        while !due.keys.is_empty()
            && let Ok(permit) = self.shared.calls.clone().try_acquire_owned()
        {
            let slots = due.next_batch();
            for slot in &slots {
                // Before the slot's amount is read: a request after it queues the slot again.
                slot.queued.store(false, SeqCst);
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
    /// A slot of each key, in the order of their next calls.
    keys: VecDeque<Arc<Slot>>,
    /// The further slots of each of these keys.
    further: HashMap<Box<[u8]>, VecDeque<Arc<Slot>>>,
}

impl Due {
    fn push(&mut self, slot: Arc<Slot>) {
        match self.further.get_mut(&slot.key.stored) {
            Some(further) => further.push_back(slot),
            None => {
                self.further.insert(slot.key.stored.clone(), VecDeque::new());
                self.keys.push_back(slot);
            }
        }
    }

    /// Takes the slots of the next call.
    fn next_batch(&mut self) -> Vec<Arc<Slot>> {
        let slots: Vec<_> = self.keys.drain(..self.keys.len().min(MAX_BATCH)).collect();
        for slot in &slots {
            match self.further.get_mut(&slot.key.stored).and_then(VecDeque::pop_front) {
                Some(next) => self.keys.push_back(next),
                None => drop(self.further.remove(&slot.key.stored)),
            }
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
